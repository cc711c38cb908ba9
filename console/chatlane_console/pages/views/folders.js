// The folders of a person: chips above the list, and what can be done with the chosen one.
import { folders as api } from "../modules/api.js";
import { html, useValue } from "../modules/html.js";
import { attempt, tell } from "../modules/messages.js";
import { ask, confirmed, Menu } from "./dialog.js";

const COLOURS = [
  ["#6366f1", "Indigo"],
  ["#2563eb", "Blue"],
  ["#0891b2", "Teal"],
  ["#16a34a", "Green"],
  ["#ca8a04", "Yellow"],
  ["#ea580c", "Orange"],
  ["#dc2626", "Red"],
  ["#db2777", "Pink"],
  ["#6b7280", "Grey"],
];
const NEW = "new";
const NONE = "none";

/** @param {{ catalogue: import("../modules/catalogue.js").Catalogue }} props */
export function Folders({ catalogue }) {
  const folders = useValue(catalogue.folders);
  const filter = useValue(catalogue.filter);
  const chosen = folders.find((folder) => folder.id === filter.project_id);
  return html`<div class="folder-line"><div class="filters folders" role="group" aria-label="Folders">
    ${folders.map(
      (folder) =>
        html`<button key=${folder.id} type="button" class="filter" aria-pressed=${String(folder === chosen)}
          onClick=${() => catalogue.choose({ project_id: folder === chosen ? undefined : folder.id })}>
          <${Dot} folder=${folder} />${folder.name} <span class="number soft">${folder.sessions}</span>
        </button>`,
    )}
    <button type="button" class="filter" onClick=${() => void made(catalogue)}>New folder</button></div>
    ${chosen && !chosen.is_built_in &&
    html`<${Menu} label=${`Actions of the folder ${chosen.name}`} items=${actionsOf(catalogue, folders, chosen)} />`}
  </div>`;
}

/** @param {{ folder: any }} props */
export function Dot({ folder }) {
  return html`<span class="dot" aria-hidden="true" style=${{ background: folder.colour }}></span>`;
}

/** Ask for a name and make a folder; return it. @param {import("../modules/catalogue.js").Catalogue | null} catalogue */
async function made(catalogue) {
  const name = await ask({ title: "New folder", label: "Name", action: "Make" });
  if (!name?.trim()) return undefined;
  const folder = await attempt(() => api.create({ name: name.trim() }));
  if (folder) await catalogue?.readFolders();
  return folder;
}

/**
 * @param {import("../modules/catalogue.js").Catalogue} catalogue
 * @param {any[]} folders
 * @param {any} chosen
 */
function actionsOf(catalogue, folders, chosen) {
  const act = async (/** @type {() => Promise<any>} */ work) => {
    await attempt(work);
    await catalogue.readFolders();
  };
  const own = folders.filter((folder) => !folder.is_built_in).map((folder) => folder.id);
  const place = own.indexOf(chosen.id);
  const swapped = (/** @type {number} */ by) => {
    const ids = [...own];
    ids.splice(place, 1);
    ids.splice(place + by, 0, chosen.id);
    return () => void act(() => api.arrange(ids));
  };
  return [
    {
      label: "Rename folder",
      act: async () => {
        const name = await ask({ title: "Name this folder", label: "Name", value: chosen.name, action: "Save" });
        if (name?.trim()) await act(() => api.update(chosen.id, { name: name.trim() }));
      },
    },
    {
      label: "Change colour",
      act: async () => {
        const choices = COLOURS.map(([value, label]) => ({ value, label }));
        const value = choices.some((choice) => choice.value === chosen.colour) ? chosen.colour : choices[0].value;
        const colour = await ask({ title: "Colour of the folder", label: "Colour", value, choices, action: "Save" });
        if (colour) await act(() => api.update(chosen.id, { colour }));
      },
    },
    ...(place > 0 ? [{ label: "Move forwards", act: swapped(-1) }] : []),
    ...(place < own.length - 1 ? [{ label: "Move backwards", act: swapped(1) }] : []),
    {
      label: "Remove folder",
      isDanger: true,
      act: async () => {
        const agreed = await confirmed("Remove this folder?", "Its conversations stay.", "Remove");
        if (!agreed) return;
        await act(() => api.remove(chosen.id));
        catalogue.choose({ project_id: undefined });
      },
    },
  ];
}

/**
 * Ask for a folder and put a conversation into it.
 * @param {any} session
 * @param {(project: string | null) => Promise<any>} move
 */
export async function moveToFolder(session, move) {
  const known = await attempt(() => api.list());
  if (!known) return;
  const folders = known.projects.filter((/** @type {any} */ folder) => !folder.is_built_in);
  const value = folders.some((/** @type {any} */ folder) => folder.id === session.project_id) ? session.project_id : NONE;
  const choices = [
    { value: NONE, label: "No folder" },
    ...folders.map((/** @type {any} */ folder) => ({ value: folder.id, label: folder.name })),
    { value: NEW, label: "A new folder" },
  ];
  let wanted = await ask({ title: "Move to folder", label: "Folder", value, choices, action: "Move" });
  if (wanted === NEW) wanted = (await made(null))?.id ?? null;
  if (wanted === null || wanted === value) return;
  if (await move(wanted === NONE ? null : wanted)) tell(wanted === NONE ? "The conversation is in no folder." : "The conversation is moved.");
}
