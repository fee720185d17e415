/** What has been closed is closed: its address and its directory are free, also for who asked for the close second. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it, vi } from 'vitest';
import { runningClock } from '../../../src/backends/runningClock.ts';
import { publishKVEvents } from '../../../src/serve/gateway/events/publisher.ts';
import { Gateway } from '../../../src/serve/gateway/gateway.ts';
import { HandoffSender } from '../../../src/serve/handoff/sender.ts';
import { echo, TestBackend } from '../../gateway/live/backends.ts';
import { portOfOurOwn } from '../../ports.ts';
import { blocks, openHostRuntime, prompt, tenant, write } from '../liveRuntime.ts';

const dir = mkdtempSync(join(tmpdir(), 'tierkv-closed-'));
const kv = await openHostRuntime({ tokenIds: true });
const backend = await TestBackend.open(echo);
afterAll(async () => {
  await kv.close();
  await backend[Symbol.asyncDispose]();
  rmSync(dir, { recursive: true, force: true });
});

interface Closable {
  close(): Promise<void>;
}

const opened: [string, (port: number) => Promise<Closable>][] = [
  ['a runtime on a directory', () => openHostRuntime({ nvme: { dir, bytes: blocks(8) } })],
  ['a publisher', (port) => publishKVEvents(kv, { endpoint: `tcp://127.0.0.1:${port}` })],
  ['a sender of blocks', (port) => HandoffSender.open(kv, { listen: { port } })],
  ['a gateway', (port) => Gateway.open({ backends: [{ url: backend.url }], port })],
];

describe('what has closed can be opened again at once', () => {
  it.each(opened)('%s', async (_, open) => {
    const port = await portOfOurOwn();
    for (let i = 0; i < 10; i++) {
      const one = await open(port);
      void one.close();
      await one.close();
    }
    await expect(open(port).then((one) => one.close())).resolves.toBeUndefined();
  });
});

it('no alarm stays set where no transfer is in flight, nor behind a runtime that has closed', async () => {
  const set = new Set<object>();
  const alarm = runningClock.alarm.bind(runningClock);
  const spy = vi.spyOn(runningClock, 'alarm').mockImplementation((afterMs, ring, keeps) => {
    const one = {};
    set.add(one);
    const off = (): unknown => set.delete(one);
    const cancel = alarm(
      afterMs,
      () => {
        off();
        ring();
      },
      keeps,
    );
    return () => {
      off();
      cancel();
    };
  });
  try {
    const alone = await openHostRuntime({ nvme: { dir, bytes: blocks(40) }, migration: false });
    const sequence = await alone.begin(prompt(1), { tenant });
    write(alone, sequence, 1);
    await alone.seal(sequence);
    alone.release(sequence);
    alone.manager.evict(0, 20, alone.nowUs());
    expect(set.size).toBeGreaterThan(0);
    await alone.idle();
    expect(set.size).toBe(0);
    await alone.close();
    const migrating = await openHostRuntime({ nvme: { dir, bytes: blocks(40) } });
    migrating.release(await migrating.begin(prompt(1), { tenant }));
    await migrating.close();
    expect(set.size).toBe(0);
  } finally {
    spy.mockRestore();
  }
});
