/**
 * Whether the core on which a software device fills staging memory and the one on which the host empties it have a cache in
 * common. Nothing says so, and it changes within fractions of a second where the system, or the host of a virtual machine,
 * moves work from core to core. But what the device wrote last tells: the host reads a few lines of it, each only when the
 * one before is there. A cache that both share answers in some 20 ns, another core's cache or memory in 100 and more.
 *
 * What was written a while ago has left every cache, so slow answers count only when many follow each other. And an answer is
 * good for a moment: without a new one the cores count as far apart.
 */

/** Between a cache that is shared and anything that is farther away. */
const NEAR_NS = 70;
/** So many slow answers in a row say that the cores are far apart. */
const SLOW_ANSWERS = 8;
const GOOD_FOR_MS = 500;

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
  #quickMs = Number.NEGATIVE_INFINITY;

  constructor(clockMs: () => number = () => performance.now()) {
    this.#clockMs = clockMs;
  }

  /** False as well where nothing was looked at lately. */
  get near(): boolean {
    return this.#slowAnswers < SLOW_ANSWERS && this.#clockMs() - this.#quickMs < GOOD_FOR_MS;
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
      this.#quickMs = endedMs;
    } else this.#slowAnswers += 1;
  }
}

const nothing = new Int32Array(1);
/** What is read goes here, so that reading it is not left out. */
const followed = new Int32Array(1);

/** The place of each read depends on the word before, by as much as nothing. */
function follow(words: Int32Array): number {
  const mask = nothing[0]!;
  let word = 0;
  for (let i = 0; i < lines.length; i++) word = words[lines[i]! + (word & mask)]!;
  return word;
}
