import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

it('the embedding example begins, steps, forks, truncates, reloads and waits for room', () => {
  const example = fileURLToPath(new URL('../../examples/embed.ts', import.meta.url));
  const output = execFileSync(process.execPath, [example], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  expect(output.trimEnd().split('\n')).toEqual([
    'begin: 0 tokens cached, 7 blocks',
    'step: 120 tokens, 8 blocks',
    'fork: 113 tokens with eight drafts, 8 blocks',
    'truncate: 107 tokens, 7 blocks',
    'lookup: [ 0, 6, 0 ] blocks in HBM, DDR, NVMe',
    'reload: 120 of 130 tokens need no prefill',
    'wait: 1 request waits, there is room for 11 blocks',
    'wait: served with 15 blocks',
  ]);
});
