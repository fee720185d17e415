/** When the gateway's queue lets requests through: at once, and then one at each tick that is due. */

import { expect, it } from 'vitest';
import type { ControlPlane } from '../../../src/sim/control/controlPlane.ts';
import { gateways } from '../../../src/sim/control/flowControl.ts';
import { GatewayQueue } from '../../../src/sim/control/gatewayQueue.ts';
import { priorityPolicies } from '../../../src/sim/control/priority.ts';
import type { SimRequest } from '../../../src/sim/instance/simRequest.ts';
import { request, router, world } from './fixtures.ts';

const TICK_US = 500;

/** A queue on a clock of the test: what it lets through and when, and when it asks for ticks. */
function ticking(saturation: (nowUs: number) => number) {
  const gateway = gateways.make({ policy: 'banded' }, world()).queue;
  const priorities = priorityPolicies.make({ policy: 'slo-class' }, world());
  const through: [number, number][] = [];
  const due: number[] = [];
  const control = { gateway, saturation } as unknown as ControlPlane;
  const queue = new GatewayQueue(
    control,
    { tickUs: TICK_US, ttlUs: 0 },
    {
      scheduleDispatch: (timeUs) => due.push(timeUs),
      scheduleExpiry: () => {},
      dispatched: (entry, nowUs) => through.push([entry.request.number, nowUs]),
      shed: () => {},
    },
  );
  let number = 0;
  const enter = (nowUs: number): void => {
    const view = request({ number: number++, sloClass: 'standard' }) as unknown as SimRequest;
    queue.enqueue(view, priorities.prioritise(view, router()), nowUs);
  };
  return { queue, through, due, enter };
}

it('a request that comes to a free gateway leaves at once, and the tick it asked for is due all the same', () => {
  const { through, due, enter } = ticking(() => 0);
  enter(100);
  expect(through).toEqual([[0, 100]]);
  expect(due).toEqual([600]);
});

it('requests that were held leave one a tick, and the last of them leaves one more tick due', () => {
  const { queue, through, due, enter } = ticking((nowUs) => (nowUs < 1000 ? 2 : 0));
  for (const nowUs of [100, 200, 300]) enter(nowUs);
  expect(through).toEqual([]);
  expect(due, 'one tick for all that wait').toEqual([600]);
  for (let at = 0; at < due.length && at < 10; at++) queue.tick(due[at]);
  expect(due).toEqual([600, 1100, 1600, 2100, 2600]);
  expect(through).toEqual([
    [0, 1100],
    [1, 1600],
    [2, 2100],
  ]);
});
