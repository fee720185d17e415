/**
 * Whether the core on which a software device fills staging memory and the one on which the host empties it have a cache in
 * common. Nothing says so, and it changes within fractions of a second where the system, or the host of a virtual machine,
 * moves work from core to core. But what the device wrote last tells: the host reads a few lines of it, each only when the
 * one before is there. A cache that both share answers in some 20 ns, another core's cache or memory in 100 and more.
 *
 * What has left every cache answers slowly too, be it old or much. So slow answers count only when many follow each other, and
 * nobody may look at large buffers: those of cores that are far apart say nothing. Therefore cores count as near until they were
 * found to be far apart, and a moment later again, for as long as it takes to find out:
 *
 *     near |s s s q s s s s s s s s| far, for 50 ms | near |s s s| far, for 50 ms | near |s q ..     s, q: a slow and a quick answer
 */

/** Between a cache that is shared and anything that is farther away. */
const NEAR_NS = 70;
/** So many slow answers in a row say that the cores are far apart. */
const SLOW_ANSWERS = 8;
/** And so many that they still are. */
const SLOW_ANSWERS_AGAIN = 3;
const FAR_FOR_MS = 50;

/** Less than that is written so fast that what else the cores do blurs the answer. */
const LANDED_BYTES_MIN = 512 * 1024;
const PAGE_BYTES = 4096;
const PAGES = 4;
const LINES_PER_PAGE = PAGE_BYTES / 64;
const LINES_READ_PER_PAGE = 16;

/** Where the lines begin, in words, in an order that no prefetcher foresees. */
const lines: Int32Array = Int32Array.from({ length: PAGES * LINES_READ_PER_PAGE }, (_, i) => {
  const page = i % PAGES;
  const line = (37 * Math.floor(i / PAGES) + 11 * page + 5) % LINES_PER_PAGE;
  return (page * PAGE_BYTES + line * 64) / 4;
});

export class CacheDistance {
  readonly #clockMs: () => number;
  #slowAnswers = 0;
  #far = false;
  #farUntilMs = Number.NEGATIVE_INFINITY;

  constructor(clockMs: () => number = () => performance.now()) {
    this.#clockMs = clockMs;
  }

  /** True as well when it is time to find out anew. */
  get near(): boolean {
    return !this.#far || this.#clockMs() >= this.#farUntilMs;
  }

  /** @param landed what the device has just filled, up to its byte `end`, and nobody has looked at */
  look(landed: ArrayBuffer, end: number): void {
    if (end < LANDED_BYTES_MIN) return;
    const firstPage = Math.floor(end / PAGE_BYTES) - PAGES;
    const words = new Int32Array(landed, firstPage * PAGE_BYTES, (PAGES * PAGE_BYTES) / 4);
    const startedMs = this.#clockMs();
    followed[0] = follow(words);
    const endedMs = this.#clockMs();
    if (((endedMs - startedMs) * 1e6) / lines.length < NEAR_NS) {
      this.#slowAnswers = 0;
      this.#far = false;
    } else if (this.near) {
      this.#slowAnswers += 1;
      if (this.#slowAnswers < (this.#far ? SLOW_ANSWERS_AGAIN : SLOW_ANSWERS)) return;
      this.#slowAnswers = 0;
      this.#far = true;
      this.#farUntilMs = endedMs + FAR_FOR_MS;
    }
  }
}

const nothing = new Int32Array(1);
/** What is read goes here, so that reading it is not left out. */
const followed = new Int32Array(1);

/** The place of each read depends on the word before, by as much as nothing. */
function follow(words: Int32Array): number {
  const mask = nothing[0];
  let word = 0;
  for (let i = 0; i < lines.length; i++) word = words[lines[i] + (word & mask)];
  return word;
}
