/**
 * A model of the CPU tier of upstream's offload chain (reference commit f90a1e3a), for comparison only: keys
 * with references. -1 is a promotion under way, 0 ready and evictable, above that pinned by writers.
 */

export class HostTier {
  evictions = 0;
  readonly #capacity: number;
  readonly #refs = new Map<string, number>();
  /** Ready ones, the oldest first. */
  readonly #ready = new Set<string>();

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  get lru(): string[] {
    return [...this.#ready];
  }

  /** Key and references, in order of the keys. */
  get blocks(): [string, number][] {
    return [...this.#refs].sort(([a], [b]) => (a < b ? -1 : 1));
  }

  state(key: string): 'miss' | 'pending' | 'hit' {
    const refs = this.#refs.get(key);
    return refs === undefined ? 'miss' : refs === -1 ? 'pending' : 'hit';
  }

  touch(key: string): void {
    if (!this.#ready.delete(key)) return;
    this.#ready.add(key);
  }

  /** @returns false without room and without anything to evict */
  store(key: string): boolean {
    if (this.#refs.has(key)) {
      this.touch(key);
      return true;
    }
    if (this.#refs.size >= this.#capacity && !this.#evict(1)) return false;
    this.#refs.set(key, 0);
    this.#ready.add(key);
    return true;
  }

  /** Room for a promotion of the keys that are not here, all or none. @returns those */
  prepare(keys: readonly string[]): string[] {
    const absent = keys.filter((key) => !this.#refs.has(key));
    const free = this.#capacity - this.#refs.size;
    if (absent.length === 0 || !this.#evict(absent.length - free)) return [];
    for (const key of absent) this.#refs.set(key, -1);
    return absent;
  }

  complete(key: string): void {
    if (this.#refs.get(key) !== -1) return;
    this.#refs.set(key, 0);
    this.#ready.add(key);
  }

  pin(key: string): void {
    this.#refs.set(key, (this.#refs.get(key) ?? 0) + 1);
    this.#ready.delete(key);
  }

  unpin(key: string): void {
    const refs = (this.#refs.get(key) ?? 1) - 1;
    this.#refs.set(key, refs);
    if (refs === 0) this.#ready.add(key);
  }

  #evict(count: number): boolean {
    if (count > this.#ready.size) return false;
    for (const key of [...this.#ready].slice(0, Math.max(0, count))) {
      this.#ready.delete(key);
      this.#refs.delete(key);
      this.evictions++;
    }
    return true;
  }
}
