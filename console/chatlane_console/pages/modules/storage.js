// What a browser keeps for one signed-in person: drafts and messages on their way.

const PREFIX = "chatlane.";
let owner = "";

/** Name whose entries are read and written; entries of others are removed. @param {string} name */
export function keepFor(name) {
  owner = `${PREFIX}${name}.`;
  try {
    for (const key of Object.keys(localStorage)) {
      if (key.startsWith(PREFIX) && !key.startsWith(owner) && !isSetting(key)) {
        localStorage.removeItem(key);
      }
    }
  } catch {
    // A browser without storage keeps nothing.
  }
}

/** Remove everything that belongs to the person. */
export function forgetPerson() {
  keepFor("");
}

/** @param {string} key */
function isSetting(key) {
  return key === `${PREFIX}theme` || key === `${PREFIX}reasoning`;
}

/**
 * @param {string} name
 * @param {any} fallback
 */
export function stored(name, fallback) {
  try {
    const text = localStorage.getItem(owner + name);
    return text === null ? fallback : JSON.parse(text);
  } catch {
    return fallback;
  }
}

/**
 * @param {string} name
 * @param {any} value `null` removes the entry.
 */
export function store(name, value) {
  try {
    if (value === null) localStorage.removeItem(owner + name);
    else localStorage.setItem(owner + name, JSON.stringify(value));
  } catch {
    // A full or missing storage: the window still has the value.
  }
}

/** @param {string} name @param {string} fallback */
export function setting(name, fallback) {
  try {
    return localStorage.getItem(PREFIX + name) ?? fallback;
  } catch {
    return fallback;
  }
}

/** @param {string} name @param {string | null} value */
export function changeSetting(name, value) {
  try {
    if (value === null) localStorage.removeItem(PREFIX + name);
    else localStorage.setItem(PREFIX + name, value);
  } catch {
    // The setting lasts as long as the window.
  }
}
