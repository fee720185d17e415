/** One device a test file, opened before its first test and given back after its last. */

import { afterAll, beforeAll } from 'vitest';
import { openDevice } from '../../../src/backends/webgpu/adapter.ts';
import type { LiveDevice } from '../../../src/backends/webgpu/device.ts';
import { testAdapter } from '../../adapter.ts';

export function testDevice(): { readonly live: LiveDevice } {
  let opened: LiveDevice | undefined;
  beforeAll(async () => {
    opened = await openDevice({ adapter: testAdapter });
  });
  afterAll(async () => {
    await opened?.[Symbol.asyncDispose]();
  });
  return {
    get live(): LiveDevice {
      if (opened === undefined) throw new Error('the device is there only while tests run');
      return opened;
    },
  };
}
