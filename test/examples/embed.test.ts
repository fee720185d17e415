import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

it('the embedding example reloads what it pushed down', () => {
  const example = fileURLToPath(new URL('../../examples/embed.ts', import.meta.url));
  const output = execFileSync(process.execPath, [example], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  expect(output).toBe(
    'look up: [ 0, 6, 0 ] blocks in HBM, DDR, NVMe\nreloaded: 96 of 100 tokens need no prefill\n',
  );
});
