import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { openDevice } from '../../../../src/backends/webgpu/adapter.ts';
import type { LiveDevice } from '../../../../src/backends/webgpu/device.ts';
import { HbmStore } from '../../../../src/backends/webgpu/hbmStore.ts';
import { type BoxItem, type BoxPlan, boxPlan } from '../../../../src/backends/webgpu/types.ts';
import { blockBox, tokenBox } from '../../../../src/runtime/geometry/box.ts';
import { kvLayout } from '../../../../src/runtime/geometry/layout.ts';
import { poolShape } from '../../../../src/runtime/tables/slotPool.ts';
import type { StoreItem, StoreResult } from '../../../../src/runtime/tier/tierStore.ts';
import { testAdapter } from '../../../adapter.ts';
import { expectLoaded, fillPool, names } from './boxTruth.ts';

const layout = kvLayout({ layers: 8, kvHeads: 4, headDim: 32, dtype: 'f16', blockTokens: 16 });
const shape = poolShape(16, 4 * layout.blockBytes, [layout.blockBytes]);
const plans: Record<string, BoxPlan> = {
  'through the kernels': boxPlan(layout, tokenBox(layout, 0, 8)),
  'by copies': boxPlan(layout, { ...blockBox(layout, 0), layerStart: 2, layerEnd: 6 }),
};

let live: LiveDevice;
let store: HbmStore;
let blocks: StoreItem[];
beforeEach(async () => {
  live = await openDevice({ adapter: testAdapter });
  store = await HbmStore.open(live, shape, {
    stagingBytes: 16_384,
    stagingBuffers: 2,
    verifyWrites: false,
  });
  blocks = await fillPool(store, shape);
});
afterEach(async () => {
  vi.restoreAllMocks();
  await store[Symbol.asyncDispose]();
  await live[Symbol.asyncDispose]();
});

const boxes = (plan: BoxPlan): BoxItem[] =>
  blocks.map((block) => ({ ...block, plan, bytes: new Uint8Array(plan.boxBytes) }));

function refusals(ends: readonly StoreResult[]): number {
  for (const { reason } of ends) if (reason !== '') expect(reason).toMatch(/device (lost|was)|failed/);
  expect(['loaded', 'refused']).toEqual(expect.arrayContaining([...new Set(names(ends))]));
  return names(ends).filter((name) => name === 'refused').length;
}

for (const [way, plan] of Object.entries(plans)) {
  for (const kind of ['readBoxes', 'writeBoxes'] as const) {
    describe(`${kind} ${way} on a device that is lost`, () => {
      it('before the first box was ever moved ends as refused', async () => {
        const call = store[kind](boxes(plan));
        live.device.destroy();
        expect(refusals(await call)).toBe(blocks.length);
        expect(refusals(await store[kind](boxes(plan)))).toBe(blocks.length);
      });

      it('with some buffers under way ends the rest as refused, and all calls behind it', async () => {
        expectLoaded(await store[kind](boxes(plan)));
        const { queue } = live.device;
        const submit = queue.submit.bind(queue);
        let submits = 0;
        vi.spyOn(queue, 'submit').mockImplementation((buffers) => {
          submit(buffers);
          if (++submits === 3) live.device.destroy();
        });
        const first = refusals(await store[kind](boxes(plan)));
        expect(submits).toBeGreaterThanOrEqual(3);
        expect(first).toBeGreaterThan(0);
        const later = [
          store.readBoxes(boxes(plan)),
          store.writeBoxes(boxes(plan)),
          store.read(blocks.map((block) => ({ ...block, bytes: new Uint8Array(layout.blockBytes) }))),
          store.seal(blocks),
        ];
        const counts = (await Promise.all<readonly StoreResult[]>(later)).map(refusals);
        expect(counts).toEqual(later.map(() => blocks.length));
        await store[Symbol.asyncDispose]();
      });

      it('in the moment in which a buffer has landed but is not looked at yet ends as refused', async () => {
        const whenMapped = live.whenMapped.bind(live);
        vi.spyOn(live, 'whenMapped').mockImplementation(async (...mapping) => {
          const mapped = await whenMapped(...mapping);
          live.device.destroy();
          return mapped;
        });
        expect(refusals(await store[kind](boxes(plan)))).toBeGreaterThan(0);
      });

      it('by a call that throws ends as refused', async () => {
        vi.spyOn(live.device.queue, 'submit').mockImplementation(() => {
          throw new Error('the queue is broken');
        });
        const ends = await store[kind](boxes(plan));
        expect(refusals(ends)).toBe(blocks.length);
        expect(ends[0].reason).toMatch(/failed: the queue is broken/);
      });
    });
  }
}
