/**
 * One life of a store, in a process that ends by its own hand in the middle of it: opens what the lives
 * before left, writes unique patterns, asks for durability, takes checkpoints, closes and opens again. What
 * it has done, and been told, goes to a log at once: the log is what the next start is held to.
 *
 *     w SLOT CLASS GENERATION   a write begins          s N   a durability point is asked for
 *     e SLOT CLASS GENERATION   it ended as loaded      d N   it is reached
 *     o                         the store is open       c     it was closed       k WHAT   this is the end
 */

import { openSync, writeSync } from 'node:fs';
import { FileStore } from '../../src/backends/file/fileStore.ts';
import { Outcome } from '../../src/runtime/tier/tier.ts';
import { emptyItem, mismatchedWords, patternItem, SeededRandom } from '../../src/testing/patternItems.ts';
import { KillSeam, type Moment } from './killSeam.ts';
import { scenarios } from './scenario.ts';

export interface Life {
  readonly dir: string;
  readonly log: string;
  readonly scenario: number;
  readonly seed: number;
  readonly at: number;
  readonly moment: Moment;
  /** Generations of this life are above this. */
  readonly generation: number;
  readonly steps: number;
}

const life = JSON.parse(process.argv[2]) as Life;
const log = openSync(life.log, 'a');
const say = (line: string): void => void writeSync(log, `${line}\n`);
const { shape, options } = scenarios[life.scenario];
const random = new SeededRandom(life.seed);
const seam = new KillSeam(life.dir, life, random, (change) => say(`k ${change}`));
let { generation } = life;
let points = 0;
const busy = new Set<number>();

async function open(): Promise<FileStore> {
  const store = await FileStore.open(life.dir, shape, {
    ...options,
    wrapFile: (file, name) => seam.wrapFile(file, name),
    wrapDirectory: (ops) => seam.wrapDirectory(ops),
  });
  say('o');
  return store;
}

async function write(store: FileStore): Promise<void> {
  // The manager never writes into a page that something else is written into, unless both are of one size.
  const pages = random.distinctBelow(shape.pages, 1 + random.below(6)).filter((page) => !busy.has(page));
  for (const page of pages) busy.add(page);
  const items = pages.map((page) => {
    const sizeClass = random.below(shape.slotBytes.length);
    const slot = page * shape.slotsPerPageMax + random.below(shape.slotsPerPage[sizeClass]);
    return patternItem(shape, slot, sizeClass, ++generation);
  });
  for (const { slot, sizeClass, generation: g } of items) say(`w ${slot} ${sizeClass} ${g}`);
  const results = await store.write(items);
  for (const page of pages) busy.delete(page);
  items.forEach(({ slot, sizeClass, generation: g }, i) => {
    if (results[i].outcome === Outcome.LOADED) say(`e ${slot} ${sizeClass} ${g}`);
  });
}

async function sync(store: FileStore): Promise<void> {
  const point = ++points;
  say(`s ${point}`);
  await store.sync();
  say(`d ${point}`);
}

async function read(store: FileStore): Promise<void> {
  for (const { slot, sizeClass, generation: g } of store.records()) {
    if (!random.chance(0.1)) continue;
    const item = emptyItem(patternItem(shape, slot, sizeClass, g));
    const [result] = await store.read([item]);
    if (result.outcome === Outcome.LOADED && mismatchedWords(item) > 0) say('WRONG');
  }
}

async function live(): Promise<void> {
  let store = await open();
  let under: Promise<void>[] = [];
  for (let step = 0; step < life.steps; step++) {
    const roll = random.below(100);
    if (roll < 60) under.push(write(store));
    else if (roll < 75) under.push(sync(store));
    else if (roll < 82) under.push(store.checkpoint());
    else if (roll < 90) await read(store);
    else if (roll < 95) {
      await Promise.all(under);
      under = [];
      await store[Symbol.asyncDispose]();
      say('c');
      store = await open();
    }
    if (random.chance(0.5)) await Promise.all(under);
  }
  await Promise.all(under);
  await store[Symbol.asyncDispose]();
  say('c');
}

await live();
say(`survived ${seam.changes}`);
