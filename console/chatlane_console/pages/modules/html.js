// The library of views, bound once: `html` makes elements, and no text is ever read as HTML.
import { h } from "../vendor/preact.js";
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import htm from "../vendor/htm.js";
import { effect } from "../vendor/signals.js";

export { render } from "../vendor/preact.js";
export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/hooks.js";
export { batch, computed, effect, signal } from "../vendor/signals.js";

export const html = htm.bind(h);

/**
 * Return the value of a signal, and render the component again when it changes.
 * @template T
 * @param {{ value: T, peek: () => T }} source
 * @returns {T}
 */
export function useValue(source) {
  const [, renderAgain] = useState(0);
  const rendered = useRef(source.peek());
  rendered.current = source.peek();
  useEffect(
    () =>
      effect(() => {
        const value = source.value;
        // Also catches a change between the render and this effect.
        if (value !== rendered.current) renderAgain((count) => count + 1);
      }),
    [source],
  );
  return rendered.current;
}
