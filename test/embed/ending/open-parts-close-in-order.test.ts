import { expect, it } from 'vitest';
import { OpenParts } from '../../../src/embed/stores.ts';

it('parts close in the opposite order, also after one that fails, and once', async () => {
  const closed: string[] = [];
  const part = (name: string): AsyncDisposable => ({
    [Symbol.asyncDispose]: async () => void closed.push(name),
  });
  const parts = new OpenParts();
  parts.use(part('device'));
  parts.use({ [Symbol.dispose]: () => void closed.push('staging') });
  parts.defer(() => {
    throw new Error('the file is gone');
  });
  parts.use(part('disk'));

  const kept = parts.move();
  await parts[Symbol.asyncDispose]();
  expect(closed).toEqual([]);
  await expect(kept[Symbol.asyncDispose]()).rejects.toThrow('the file is gone');
  expect(closed).toEqual(['disk', 'staging', 'device']);
  await kept[Symbol.asyncDispose]();
  expect(closed).toHaveLength(3);
});
