/** `tierkv/browser` in a worker of Chromium: a device that is given, lost and replaced; files over reloads; what it refuses. */

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { chromiumProblem, openProfile } from './browser.ts';
import { type WorkerPages, workerPages } from './workerPage.ts';

const problem = await chromiumProblem();
if (problem !== undefined) process.stderr.write(`SKIPPED: a runtime in a page: ${problem}\n`);

const whole = { cachedTokens: 64, right: 4, wrong: 0 };

describe.skipIf(problem !== undefined)('a runtime in a page', () => {
  let profile: Awaited<ReturnType<typeof openProfile>>;
  let pages: WorkerPages;

  beforeAll(async () => {
    pages = await workerPages('runtimeWorker');
    profile = await openProfile({ webgpu: true });
  });
  afterAll(async () => {
    await profile?.close();
    await pages?.[Symbol.asyncDispose]();
  });

  it('shares the device of its engine, goes on after its loss, and leaves it alive', async () => {
    const tab = await pages.open(profile.context);
    expect(await tab.call('sharedDevice')).toEqual({
      isShared: true,
      before: whole,
      after: whole,
      devicesLost: 1,
      devices: 2,
      isAlive: true,
    });
    await tab.page.close();
  });

  it('finds its blocks again after a reload, without a device', async () => {
    const first = await pages.open(profile.context);
    expect(await first.call('inFiles', 3)).toMatchObject({ found: { cachedTokens: 0 }, saved: 4 });
    await first.page.close();
    const next = await pages.open(profile.context);
    expect(await next.call('inFiles', 3)).toMatchObject({ found: whole });
    // control: another prompt is not there
    expect(await next.call('inFiles', 4)).toMatchObject({ found: { cachedTokens: 0 } });
    await next.page.close();
  });

  it('refuses what a browser does not have, by name, and goes on without files where it is asked to', async () => {
    const tab = await pages.open(profile.context);
    for (const [name, value] of Object.entries({
      log: 'x.log',
      remote: {},
      adapter: 'software',
      wait: 'sleep',
    })) {
      await expect(tab.call('open', { [name]: value })).rejects.toThrow(new RegExp(`TKV_CONFIG ${name}`));
    }
    for (const dir of ['..', '../kv', 'a/./b', '/']) {
      const nvme = { dir, bytes: 1 << 22 };
      await expect(tab.call('open', { nvme, filesElse: 'without' })).rejects.toThrow(/TKV_CONFIG nvme\.dir/);
    }
    await expect(tab.call('open', { filesElse: 'maybe' })).rejects.toThrow(/filesElse/);
    const files = { nvme: { dir: 'owned', bytes: 1 << 22 } };
    expect(await tab.call('open', files)).toEqual(['ddr', 'nvme']);
    const second = await pages.open(profile.context);
    await expect(second.call('open', files)).rejects.toThrow(/TKV_LOCKED/);
    expect(await second.call('open', { ...files, filesElse: 'without' })).toEqual([
      'ddr',
      expect.stringMatching(/goes on without files.*another tab/),
    ]);
    await second.page.close();
    await tab.page.close();
  });
});
