/** The tables of served points: a row is predicted from defaults or counted by its reason, and rows that were fitted to do not judge. */

import { createHash } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { type SiliconRow, siliconRows, siliconText } from '../../tools/silicon.ts';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-served-'));
afterAll(() => fs.rmSync(folder, { recursive: true, force: true }));

const names =
  'id,silicon_data_source,backend,model_path,system,precision,mode,isl,osl,batch_size,tp_size,attention_dp_size,moe_ep_size,silicon_ttft_ms,silicon_tpot_ms';
const line = (id: string, more: Record<string, string> = {}): string => {
  const row: Record<string, string> = {
    ...{ id, silicon_data_source: 'silicon_concurrency=2; x', backend: 'vllm', model_path: 'Qwen/Qwen3-32B' },
    ...{
      system: 'h100_sxm',
      precision: '',
      mode: 'agg',
      isl: '256',
      osl: '32',
      batch_size: '9',
      tp_size: '2',
    },
    ...{ attention_dp_size: '', moe_ep_size: '1', silicon_ttft_ms: '60', silicon_tpot_ms: '14.5' },
    ...more,
  };
  return names
    .split(',')
    .map((name) => row[name])
    .join(',');
};

it('each row is predicted once, or has a reason', async () => {
  const file = path.join(folder, 'sample.csv');
  const rows = [
    ...['a', 'b', 'c', 'd'].map((id) => line(id)),
    line('e', { precision: 'fp8', moe_ep_size: '1' }),
    line('f', { backend: 'sglang' }),
    line('g', { mode: 'disagg' }),
    line('h', { system: 'gb200' }),
    line('i', { model_path: 'nowhere/Model' }),
    line('j', { model_path: 'MiniMaxAI/MiniMax-M2.5', precision: 'fp8', moe_ep_size: '2' }),
    line('k', { silicon_tpot_ms: '' }),
    line('l', { model_path: 'MiniMaxAI/MiniMax-M2.5', precision: 'fp8', tp_size: '1' }),
  ];
  fs.writeFileSync(file, [names, ...rows].join('\n'));
  const told: string[] = [];
  const out = await siliconRows(file, 100, 'kernels', ({ id }) => told.push(id));
  const by = (id: string): SiliconRow => out.find((row) => row.id === id)!;
  expect(out).toHaveLength(rows.length);
  expect(
    Object.fromEntries(out.filter(({ reason }) => reason).map(({ id, reason }) => [id, reason])),
  ).toEqual({
    f: 'engine sglang',
    g: 'prefill and decode apart',
    h: 'card gb200',
    i: 'no published configuration of the model in that precision',
    j: 'experts over GPUs without data parallel ranks',
    k: 'no measured time',
    l: 'does not fit the memory',
  });
  expect(told.sort()).toEqual(['a', 'b', 'c', 'd', 'e', 'l']);
  for (const id of ['a', 'e']) expect(by(id).users).toBe(2);
  // half the weights: about half the time
  expect(by('e').tpotMs! / by('a').tpotMs!).toBeLessThan(0.75);
  for (const { id, fitted } of out) {
    expect(fitted).toBe(/^[0-3]/.test(createHash('sha256').update(id).digest('hex')));
  }
  const text = siliconText(out, 'kernels');
  const judging = out.filter(({ fitted, tpotMs }) => !fitted && tpotMs !== undefined);
  expect(text).toContain(`${judging.length} judge`);
  expect(text).toContain('| engine sglang | 1 |');
  expect(text).toContain(
    `| H100, Qwen/Qwen3-32B  | ${judging.filter(({ precision }) => precision === '').length} |`,
  );
  const few = await siliconRows(file, 1, 'kernels', () => {});
  expect(few.filter(({ tpotMs }) => tpotMs !== undefined)).toHaveLength(1);
});
