/**
 * A sequence or table means slots of one runtime. Every public call that takes one refuses one of another
 * runtime: the same numbers would name bytes of another tenant there.
 */

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { KVRuntime, KVSequence } from '../../../src/index.ts';
import { KVManager, type Sequence } from '../../../src/runtime/index.ts';
import { Openings } from '../../../src/runtime/manager/openings.ts';
import { blocks, openRuntime } from '../liveRuntime.ts';

const tokens = Array.from({ length: 40 }, (_, i) => i);
let mine: KVRuntime;
let own: KVSequence;
let other: KVRuntime;
let foreign: KVSequence;
let table: Sequence;

beforeAll(async () => {
  mine = await openRuntime({ hbmBytes: blocks(20) });
  other = await openRuntime({ hbmBytes: blocks(20) });
  own = await mine.begin(tokens, { tenant: 'alice' });
  foreign = await other.begin(tokens, { tenant: 'bob' });
  table = foreign.groups[0].table;
});
afterAll(async () => {
  for (const [kv, sequence] of [
    [mine, own],
    [other, foreign],
  ] as const) {
    expect([sequence.ended, sequence.length]).toEqual([false, 40]);
    kv.manager.checkIntegrity();
    kv.release(sequence);
    await kv.close();
  }
});

const withSequence: Readonly<Record<string, (sequence: KVSequence) => unknown>> = {
  append: (sequence) => mine.append(sequence, [...tokens, 1]),
  step: (sequence) => mine.step([{ sequence, tokens: [1] }]),
  fork: (sequence) => mine.fork(sequence),
  truncate: (sequence) => mine.truncate(sequence, 1),
  recover: (sequence) => mine.recover(sequence),
  seal: (sequence) => mine.seal(sequence),
  release: (sequence) => mine.release(sequence),
  cancel: (sequence) => mine.cancel(sequence),
  nextPart: (sequence) => mine.nextPart(sequence),
  readyLayers: (sequence) => mine.readyLayers(sequence, 0),
  openBlocks: (sequence) => mine.openBlocks(sequence),
  read: (sequence) => mine.read(sequence, 0),
  write: (sequence) => mine.write(sequence, 0, new Uint8Array(0)),
  readBlock: (sequence) => mine.readBlock(sequence, 0),
  readBlocks: (sequence) => mine.readBlocks(sequence, 1, () => {}),
  writeBlock: (sequence) => mine.writeBlock(sequence, 0, new Uint8Array(0)),
  slot: (sequence) => mine.slot(sequence, 0),
  blockTable: (sequence) => mine.blockTable(sequence),
  deviceBlockTable: (sequence) => mine.deviceBlockTable(sequence),
};
const withTable: Readonly<Record<string, () => unknown>> = {
  ready: () => mine.ready(table),
  places: () => mine.places(table),
};
const now = (): number => mine.nowUs();
const key = new Uint32Array(4);
const managerCalls: Readonly<Record<string, (manager: KVManager) => unknown>> = {
  load: (manager) => manager.load(table, now()),
  loadFromBack: (manager) => manager.loadFromBack(table, 0, 1, now()),
  recompute: (manager) => manager.recompute(table, 0, 1, now()),
  allocate: (manager) => manager.allocate(table, 0, 1, now()),
  copy: (manager) => manager.copy(table, 0, own.groups[0].table, 0, now()),
  seal: (manager) => manager.seal(table, 0, 1, key, 0, 16, now()),
  keepIn: (manager) => manager.keepIn(table, 0, 1, 0, now()),
  retain: (manager) => manager.retain(table, { priority: 0, keepUntilUs: 0 }, now()),
  releaseRange: (manager) => manager.releaseRange(table, 0, 1, now()),
  truncate: (manager) => manager.truncate(table, 0, now()),
  release: (manager) => manager.release(table, now()),
  cancel: (manager) => manager.cancel(table, now()),
  preempt: (manager) => manager.preempt(table, now()),
  demote: (manager) => manager.demote(table, now()),
  loadEstimate: (manager) => manager.inspect.loadEstimate(table, 0, 1, now()),
  loadedBlock: (manager) => manager.loadedBlock(table, 0),
  openBlock: (manager) => manager.openBlock(table, 0),
  readableBlock: (manager) => manager.readableBlock(table, 0),
  place: (manager) => manager.inspect.place(table, 0),
  requireOwn: (manager) => manager.requireOwn(table),
};
const openingCalls: Readonly<Record<string, (openings: Openings) => unknown>> = {
  tell: (openings) => openings.tell(table, 0, 1, 16, 16),
  tellAnew: (openings) => openings.tellAnew(table, 0, 1, 16, 16),
  takeBack: (openings) => openings.takeBack(table, 0, 1),
  written: (openings) => openings.written(table, 0, true),
  maySeal: (openings) => openings.maySeal(table, 0, 16),
  firstUntold: (openings) => openings.firstUntold(table, 0, 1, 16, 16),
  firstDoubtful: (openings) => openings.firstDoubtful(table, 0, 1),
  requireWritten: (openings) => openings.requireWritten(table, 0, 1, 16),
};

async function refused(call: () => unknown): Promise<void> {
  const error: unknown = await (async () => call())().catch((reason: unknown) => reason);
  expect(error).toMatchObject({ isTierKVError: true, code: 'TKV_INPUT' });
  expect(String(error)).toMatch(/belongs to another (runtime|manager)\. Pass/);
}

describe('a sequence of another runtime is refused by', () => {
  it.each(Object.keys(withSequence))('kv.%s', (name) => refused(() => withSequence[name](foreign)));
  it.each(Object.keys(withTable))('kv.%s', (name) => refused(withTable[name]));
  it.each(Object.keys(managerCalls))('manager.%s', (name) => refused(() => managerCalls[name](mine.manager)));
  it.each(Object.keys(openingCalls))('manager.openings.%s', (name) =>
    refused(() => openingCalls[name](mine.manager.openings)),
  );
});

/** Names of the methods of a class and those it extends whose first parameter has one of these names. */
function methodsTaking(prototype: object, parameters: readonly string[]): string[] {
  const names: string[] = [];
  for (let each = prototype; each !== Object.prototype; each = Object.getPrototypeOf(each)) {
    for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(each))) {
      if (typeof value !== 'function' || name === 'constructor') continue;
      const [, first] = /^[^(]*\(\s*([\w$]*)/.exec(String(value)) ?? [];
      if (parameters.includes(first)) names.push(name);
    }
  }
  return names;
}

it('the tables above have every method that takes one', () => {
  const calls = new Set([...methodsTaking(Object.getPrototypeOf(mine), ['sequence', 'entries', 'table'])]);
  expect([...calls].sort()).toEqual([...Object.keys(withSequence), ...Object.keys(withTable)].sort());
  const hidden = ['live', 'refuse'];
  const withLooks = [KVManager.prototype, Object.getPrototypeOf(mine.manager.inspect) as object];
  const onManager = withLooks
    .flatMap((each) => methodsTaking(each, ['sequence', 'from']))
    .filter((name) => !hidden.includes(name));
  expect([...new Set(onManager)].sort()).toEqual(Object.keys(managerCalls).sort());
  expect(methodsTaking(Openings.prototype, ['sequence']).sort()).toEqual(Object.keys(openingCalls).sort());
});
