/** What would work on a runtime that is closed is refused: it would wait for news that never come. */

import { expect, it } from 'vitest';
import { dashboard } from '../../../src/observe/dashboard/dashboard.ts';
import { watchRuntime } from '../../../src/observe/metrics/watch.ts';
import { publishKVEvents } from '../../../src/serve/gateway/events/publisher.ts';
import { HandoffReceiver } from '../../../src/serve/handoff/receiver.ts';
import { HandoffSender } from '../../../src/serve/handoff/sender.ts';
import { openHostRuntime } from '../liveRuntime.ts';

const closed = expect.objectContaining({ code: 'TKV_STATE' });

it('a watch, a dashboard, a scheduler, a publisher of events and both sides of hand-offs', async () => {
  const kv = await openHostRuntime();
  expect(kv.isClosed).toBe(false);
  const closing = kv.close();
  expect(kv.isClosed).toBe(true);
  for (let i = 0; i < 2; i++) {
    expect(() => watchRuntime(kv)).toThrow(closed);
    await expect(dashboard(kv)).rejects.toThrow(closed);
    expect(() => kv.scheduler()).toThrow(closed);
    await expect(publishKVEvents(kv, { endpoint: 'tcp://127.0.0.1:*' })).rejects.toThrow(closed);
    await expect(HandoffSender.open(kv, { listen: {} })).rejects.toThrow(closed);
    expect(() => new HandoffReceiver(kv)).toThrow(closed);
    await closing;
  }
});

it('a watch that was there keeps what it has counted, and has no dashboard any more', async () => {
  const kv = await openHostRuntime();
  const watch = watchRuntime(kv);
  (await dashboard(kv)).close();
  await kv.close();
  expect(watchRuntime(kv)).toBe(watch);
  await expect(dashboard(kv)).rejects.toThrow(closed);
});
