/**
 * The published policies as their papers write them, with arrays and no thought of speed. `access` returns
 * who is evicted. Room is made before the new block is looked at, as the manager does.
 */

export interface Textbook {
  access(id: number): number | undefined;
}

function without(list: number[], id: number): boolean {
  const at = list.indexOf(id);
  if (at !== -1) list.splice(at, 1);
  return at !== -1;
}

/** Evicts the least of an order among those present; `used` is called at each access. */
class Ordered implements Textbook {
  readonly #present: number[] = [];
  readonly #capacity: number;
  readonly #rank: (id: number) => number;
  readonly #used: (id: number, hit: boolean) => void;
  readonly #keepsOrder: boolean;

  constructor(
    capacity: number,
    rank: (id: number) => number,
    used: (id: number, hit: boolean) => void,
    keepsOrder = false,
  ) {
    this.#capacity = capacity;
    this.#rank = rank;
    this.#used = used;
    this.#keepsOrder = keepsOrder;
  }

  access(id: number): number | undefined {
    const hit = this.#present.includes(id);
    let evicted: number | undefined;
    if (!hit && this.#present.length === this.#capacity) {
      evicted = this.#present.reduce((a, b) => (this.#rank(b) < this.#rank(a) ? b : a));
      without(this.#present, evicted);
    }
    this.#used(id, hit);
    if (hit && this.#keepsOrder) return undefined;
    without(this.#present, id);
    this.#present.push(id);
    return evicted;
  }
}

export function lruTextbook(capacity: number): Textbook {
  return new Ordered(
    capacity,
    () => 0,
    () => {},
  );
}

export function fifoTextbook(capacity: number): Textbook {
  return new Ordered(
    capacity,
    () => 0,
    () => {},
    true,
  );
}

export function lfuTextbook(capacity: number): Textbook {
  const counts = new Map<number, number>();
  return new Ordered(
    capacity,
    (id) => counts.get(id) as number,
    (id, hit) => counts.set(id, hit ? (counts.get(id) as number) + 1 : 1),
  );
}

export function priorityTextbook(capacity: number, levelOf: (id: number) => number): Textbook {
  return new Ordered(capacity, levelOf, () => {});
}

export class ArcTextbook implements Textbook {
  readonly #c: number;
  readonly #t1: number[] = [];
  readonly #t2: number[] = [];
  readonly #b1: number[] = [];
  readonly #b2: number[] = [];
  #p = 0;
  #lastGhostWasB2 = false;

  constructor(capacity: number) {
    this.#c = capacity;
  }

  access(x: number): number | undefined {
    if (without(this.#t1, x) || without(this.#t2, x)) {
      this.#t2.push(x);
      return undefined;
    }
    const full = this.#t1.length + this.#t2.length === this.#c;
    const evicted = full ? this.#replace() : undefined;
    const size = this.#t1.length + this.#t2.length + 1;
    if (this.#b1.includes(x)) {
      this.#p = Math.min(size, this.#p + Math.max(1, this.#b2.length / this.#b1.length));
      this.#lastGhostWasB2 = false;
      without(this.#b1, x);
      this.#t2.push(x);
    } else if (this.#b2.includes(x)) {
      this.#p = Math.max(0, this.#p - Math.max(1, this.#b1.length / this.#b2.length));
      this.#lastGhostWasB2 = true;
      without(this.#b2, x);
      this.#t2.push(x);
    } else {
      while (this.#b1.length > 0 && this.#t1.length + this.#b1.length >= size) this.#b1.shift();
      const all = (): number => this.#t1.length + this.#t2.length + this.#b1.length + this.#b2.length;
      while (this.#b2.length > 0 && all() >= 2 * size) this.#b2.shift();
      this.#t1.push(x);
    }
    return evicted;
  }

  #replace(): number {
    const fits = this.#t1.length > this.#p || (this.#lastGhostWasB2 && this.#t1.length === this.#p);
    const fromT1 = this.#t1.length > 0 && (fits || this.#t2.length === 0);
    const victim = (fromT1 ? this.#t1.shift() : this.#t2.shift()) as number;
    (fromT1 ? this.#b1 : this.#b2).push(victim);
    return victim;
  }
}

export class S3FifoTextbook implements Textbook {
  readonly #capacity: number;
  readonly #small: number[] = [];
  readonly #main: number[] = [];
  readonly #ghosts: number[] = [];
  readonly #freq: Map<number, number> = new Map();

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  access(x: number): number | undefined {
    if (this.#small.includes(x) || this.#main.includes(x)) {
      this.#freq.set(x, Math.min(3, (this.#freq.get(x) as number) + 1));
      return undefined;
    }
    const full = this.#small.length + this.#main.length === this.#capacity;
    const evicted = full ? this.#evict() : undefined;
    this.#freq.set(x, 0);
    if (without(this.#ghosts, x)) this.#main.push(x);
    else this.#small.push(x);
    return evicted;
  }

  #evict(): number {
    for (;;) {
      if (this.#small.length > 0.1 * this.#capacity || this.#main.length === 0) {
        const x = this.#small.shift() as number;
        if ((this.#freq.get(x) as number) > 1) {
          this.#main.push(x);
          this.#freq.set(x, 0);
          continue;
        }
        const most = 0.9 * (this.#capacity - 1);
        while (this.#ghosts.length > 0 && this.#ghosts.length + 1 > most) this.#ghosts.shift();
        if (this.#ghosts.length + 1 <= most) this.#ghosts.push(x);
        return x;
      }
      const x = this.#main.shift() as number;
      const freq = this.#freq.get(x) as number;
      if (freq === 0) return x;
      this.#freq.set(x, freq - 1);
      this.#main.push(x);
    }
  }
}
