import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { embedOutput } from './embedOutput.ts';

it('the embedding example begins, steps, forks, truncates, reloads and waits for room', () => {
  const example = fileURLToPath(new URL('../../examples/embed.ts', import.meta.url));
  const output = execFileSync(process.execPath, [example], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  expect(output.trimEnd().split('\n')).toEqual(embedOutput);
});
