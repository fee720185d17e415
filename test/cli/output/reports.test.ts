/** `--report` of every command: a page is written, and a place where none can be is refused before anything runs. */

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Command } from 'commander';
import { afterAll, describe, expect, it } from 'vitest';
import { benchCommand } from '../../../src/cli/bench/command.ts';
import { evaluateCommand } from '../../../src/cli/evaluate/command.ts';
import { evolveCommand } from '../../../src/cli/evolve/command.ts';
import { parityCommand } from '../../../src/cli/parity/command.ts';
import { replayCommand } from '../../../src/cli/replay/command.ts';
import { simulateCommand } from '../../../src/cli/simulate/command.ts';
import { sweepCommand } from '../../../src/cli/sweep/command.ts';
import { printedBy } from '../printed.ts';

const folder = mkdtempSync(join(tmpdir(), 'tierkv-reports-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const trace = join(import.meta.dirname, '../../../data/mooncake-conversation-excerpt.jsonl.gz');
const modeled = [
  '--driver',
  'modeled',
  '--hbm-blocks',
  '100',
  '--ddr-blocks',
  '0',
  '--nvme-blocks',
  '0',
  '--requests',
  '20',
];
const model = ['--model', 'qwen/qwen3-14b', '--num-requests', '8'];

const calls: Readonly<Record<string, readonly [make: () => Command, args: readonly string[]]>> = {
  simulate: [simulateCommand, model],
  sweep: [sweepCommand, ['--grid', 'rate=4,8', '--', ...model]],
  replay: [replayCommand, [trace, ...modeled]],
  study: [replayCommand, [trace, ...modeled, '--policy', 'lru']],
  evaluate: [evaluateCommand, ['routing/lor']],
  evolve: [evolveCommand, ['--out', join(folder, 'search')]],
  parity: [parityCommand, []],
  bench: [benchCommand, ['manager', '--quick']],
};

describe('--report', () => {
  for (const [name, [make, args]] of Object.entries(calls)) {
    it(`${name}: a folder is refused before anything runs`, async () => {
      const refused = printedBy(make(), '--report', folder, ...args);
      await expect(refused).rejects.toMatchObject({ code: 'TKV_IO', path: folder });
    });
  }

  for (const name of ['simulate', 'sweep', 'replay', 'study']) {
    it(`${name}: a page with the command that gives it again`, async () => {
      const [make, args] = calls[name];
      const file = join(folder, `${name}.html`);
      await printedBy(make(), '--report', file, ...args);
      const page = readFileSync(file, 'utf8');
      expect(page).toMatch(/^<!doctype html>/);
      expect(page).toMatch(/<p class="answer (yes|no|open)">[^<]{20,}/);
      expect(page).not.toMatch(/>(NaN|undefined)</);
    });
  }
});
