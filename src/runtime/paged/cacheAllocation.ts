/** What one request has: its pages in the order of its tokens. */

export class CachePage {
  readonly pageIndex: number;
  readonly startToken: number;
  readonly tokenCount: number;
  /** The block of the paged cache that holds it. */
  readonly blockIndex: number;

  constructor(pageIndex: number, tokenCount: number, blockIndex: number) {
    this.pageIndex = pageIndex;
    this.startToken = pageIndex * tokenCount;
    this.tokenCount = tokenCount;
    this.blockIndex = blockIndex;
  }

  /** The first token behind the page. */
  get endToken(): number {
    return this.startToken + this.tokenCount;
  }
}

export class CacheAllocation {
  readonly requestId: string;
  /** In microseconds of the cache's clock. */
  readonly allocatedTimeUs: number;
  /** Tokens that were asked for, extensions included; `totalTokensAllocated` have room. */
  requestedTokens: number;
  readonly #pageTokens: number;
  readonly #pageBytes: number;
  readonly #pages: CachePage[] = [];

  constructor(
    requestId: string,
    requestedTokens: number,
    allocatedTimeUs: number,
    page: { readonly tokens: number; readonly bytes: number },
  ) {
    this.requestId = requestId;
    this.requestedTokens = requestedTokens;
    this.allocatedTimeUs = allocatedTimeUs;
    this.#pageTokens = page.tokens;
    this.#pageBytes = page.bytes;
  }

  get pages(): readonly CachePage[] {
    return this.#pages;
  }

  get pageCount(): number {
    return this.#pages.length;
  }

  get totalTokensAllocated(): number {
    return this.#pages.length * this.#pageTokens;
  }

  get totalBytesAllocated(): number {
    return this.#pages.length * this.#pageBytes;
  }

  /** In microseconds. */
  age(nowUs: number): number {
    return nowUs - this.allocatedTimeUs;
  }

  /** For the cache manager: pages behind those that the request has. */
  addPages(blocks: readonly number[]): void {
    for (const block of blocks) this.#pages.push(new CachePage(this.#pages.length, this.#pageTokens, block));
  }
}
