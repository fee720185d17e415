import { expect, it } from 'vitest';
import { type BatchKind, type Work, type WorkBatch, WorkLine } from '../../../src/backends/webgpu/device.ts';
import { testDevice } from './testDevice.ts';

const device = testDevice();

/** Work by name, in batches of at most four that end when the test says so. */
class Recorded implements BatchKind<WorkBatch> {
  readonly name = 'recorded';
  readonly submitted: string[][] = [];
  readonly endBatch: (() => void)[] = [];
  #names: string[] = [];

  async open(): Promise<WorkBatch> {
    const names: string[] = [];
    this.#names = names;
    return {
      get full(): boolean {
        return names.length === 4;
      },
      encode: () => void this.submitted.push(names),
      finish: () => new Promise((resolve) => this.endBatch.push(resolve)),
    };
  }

  work(name: string): Work<WorkBatch> {
    const addTo = (): boolean => this.#names.push(name) > 0;
    return { kind: this, addTo, refuse: (end) => expect.unreachable(end.reason) };
  }
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

async function pushedSingly(line: WorkLine, kind: Recorded, names: string): Promise<void> {
  for (const name of names) {
    line.push(kind.work(name));
    await turn();
  }
}

it('gathers from two batches under way on, and submits what has gathered when one of them ends', async () => {
  const kind = new Recorded();
  const line = new WorkLine(device.live, 'test', 2);
  await pushedSingly(line, kind, 'abcde');
  expect(kind.submitted).toEqual([['a'], ['b']]);
  kind.endBatch[1]();
  await turn();
  expect(kind.submitted.slice(2)).toEqual([['c', 'd', 'e']]);
  await pushedSingly(line, kind, 'fghij');
  expect(kind.submitted.slice(3), 'a full batch waits for none').toEqual([['f', 'g', 'h', 'i']]);
  for (const end of kind.endBatch) end();
  await turn();
  expect(kind.submitted.slice(4)).toEqual([['j']]);
  await pushedSingly(line, kind, 'k');
  expect(kind.submitted.flat().join('')).toBe('abcdefghijk');
});

it('submits in each turn what was pushed in it where no number is given', async () => {
  const kind = new Recorded();
  const line = new WorkLine(device.live, 'test');
  await pushedSingly(line, kind, 'abc');
  line.push(kind.work('d'));
  line.push(kind.work('e'));
  await turn();
  expect(kind.submitted).toEqual([['a'], ['b'], ['c'], ['d', 'e']]);
});
