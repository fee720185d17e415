import { join } from 'node:path';
import { expect, it } from 'vitest';
import { temporaryDirectory } from '../../../src/io/files/temporaryDirectory.ts';
import { endOf } from '../printed.ts';

const simulated = ['simulate', '--model', 'qwen3-14b', '--workload', 'chatbot', '--num-requests', '50'];
const question = ['--model', 'qwen3-14b', '--workload', 'chatbot', '--rate', '2', '--target', 'ttft_p99=1s'];
/** Each option that names an output, by a call that would do its work if the folder existed. */
const calls: readonly string[][] = [
  ...['json', 'metrics-path', 'requests', 'results-path', 'decisions', 'chrome-trace', 'report'].map(
    (name) => [...simulated, `--${name}`],
  ),
  ['sweep', '--grid', 'num-instances=1,2', '--json'],
  ['sweep', '--grid', 'num-instances=1,2', '--report'],
  ['plan', ...question, '--out'],
  ['plan', ...question, '--json'],
  ['evaluate', 'routing/lor', '--json'],
  ['evaluate', 'routing/lor', '--trace'],
  ['evolve', '--out', 'search', '--json'],
  ['observe', 'run.csv', '--target', 'http://127.0.0.1:1', '--vocabulary', '100', '--out'],
  ['compare', 'run.jsonl', '--gpu', 'H100', '--model', 'qwen3-8b', '--json'],
  ['latency', 'predict', '--model', 'qwen3-14b', '--json'],
  ['latency', 'fit', '--requests', 'run.jsonl', '--gpu', 'H100', '--model', 'qwen3-8b', '--out'],
  ['latency', 'check', '--json'],
  ['bench', 'links', '--json'],
  ['calibrate', '--handoffs', 'handoffs.json', '--out'],
  ['calibrate', '--out'],
  ['parity', '--log'],
  ['explain', 'kv.log', '--request', '1', '--json'],
  ['gateway', 'replay', 'gateway.log', '--json'],
  ['disk', 'stat', 'kv', '--json'],
  ['disk', 'export', 'kv', '--out'],
  ['replay', 'trace.jsonl', '--log'],
  ['workload', 'generate', '--workload', 'chatbot', '--num-requests', '5', '--output'],
];

it.each(calls)('%j', async (...call) => {
  using scratch = temporaryDirectory('tierkv-missing-folder-');
  const folder = join(scratch.path, 'missing');
  const { status, stdout, stderr } = await endOf([...call, join(folder, 'out')]);
  expect(stderr).toMatch(
    new RegExp(
      `^tierkv: ${call.at(-1)} ${folder}/out(\\.yaml)? cannot be written: the folder ${folder} does not exist\\. ` +
        `Make it \\(mkdir -p ${folder}\\), or name a file in another one\\. \\[TKV_IO\\]\\n$`,
    ),
  );
  expect(stdout).toBe('');
  expect(status).toBe(2);
});
