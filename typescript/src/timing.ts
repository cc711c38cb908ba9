// Pauses that end early, and pauses that grow.

/** Milliseconds of a clock that no clock setting changes. */
export function now(): number {
  return performance.now();
}

/** Wait; an abort ends the wait early and rejects nothing. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) {
      resolve();
      return;
    }
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    // A timer may fire up to a millisecond early.
    const timer = setTimeout(end, ms > 0 ? Math.ceil(ms) + 1 : 0);
    signal?.addEventListener("abort", end, { once: true });
  });
}

/**
 * Yield pauses in milliseconds that double up to `longest`, each shortened by up to half.
 *
 * The jitter keeps clients that lost the same server from coming back at the same moment.
 */
export function* backoff(first = 50, longest = 2000): Generator<number, never> {
  for (let ms = first; ; ms = Math.min(ms * 2, longest)) yield ms * (0.5 + Math.random() / 2);
}

/** A condition that can be set, cleared and waited for. */
export class Flag {
  isSet = false;
  readonly #waiting = new Set<() => void>();

  set(): void {
    this.isSet = true;
    for (const wake of [...this.#waiting]) wake();
  }

  clear(): void {
    this.isSet = false;
  }

  /** Return once the flag is set, the time is over, or the signal is aborted. */
  async wait(ms?: number, signal?: AbortSignal): Promise<void> {
    if (this.isSet || signal?.aborted) return;
    await new Promise<void>((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        this.#waiting.delete(wake);
        signal?.removeEventListener("abort", wake);
        resolve();
      };
      const timer = ms === undefined ? undefined : setTimeout(wake, Math.max(0, ms));
      this.#waiting.add(wake);
      signal?.addEventListener("abort", wake, { once: true });
    });
  }
}
