/**
 * Predictions beside served and measured points of `silicon_sample.csv` (PyPI aisimulate, aisimulate_core/systems): each row that a
 * deployment here can express is simulated as its benchmark ran it, a closed loop of users who ask for 80 to 100 % of the nominal lengths,
 * from defaults. Rows that cannot be expressed are counted by reason. Rows whose sha256 of the id begins with 0, 1, 2 or 3 may have been
 * fitted to (`data/latency/host.json`), all others judge. Rows come in the order of the hash's end, so the first N of them are a fair sample.
 */

import { createHash } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { TierKVError } from '../src/runtime/errors.ts';
import { dataFileNames, readText } from '../src/sim/build/dataFiles.ts';
import { simulate } from '../src/sim/build/simulate.ts';
import type { LatencyBackend } from '../src/sim/latency/latencyNames.ts';

type Fields = Readonly<Record<string, string>>;

/** One measured point, and the prediction of it or the reason why it has no prediction. */
export interface SiliconRow {
  readonly id: string;
  readonly card: string;
  readonly model: string;
  readonly precision: string;
  readonly isl: number;
  readonly osl: number;
  readonly users: number;
  readonly tp: number;
  readonly dp: number;
  /** Whether a coefficient may have seen it. */
  readonly fitted: boolean;
  readonly measuredTtftMs: number;
  readonly measuredTpotMs: number;
  readonly ttftMs?: number;
  readonly tpotMs?: number;
  readonly reason?: string;
}

const cards: Readonly<Record<string, string>> = { h100_sxm: 'H100', h200_sxm: 'H200', b200_sxm: 'B200' };

/** Models that the sample names otherwise than data files, by precision; `quantization` is of a model of 16 bits. */
const known: Readonly<Record<string, { readonly name: string; readonly quantization?: 'fp8' }>> = {
  'meta-llama/Llama-3.1-70B fp8': { name: 'llama-3.1-70b-instruct', quantization: 'fp8' },
  'nvidia/Llama-3.1-8B-Instruct-FP8 fp8': { name: 'llama-3.1-8b-instruct', quantization: 'fp8' },
  'Qwen/Qwen3-32B ': { name: 'qwen3-32b' },
  'Qwen/Qwen3-32B fp8': { name: 'qwen3-32b', quantization: 'fp8' },
  'MiniMaxAI/MiniMax-M2.5 fp4': { name: 'nvidia/MiniMax-M2.5-NVFP4' },
  'moonshotai/Kimi-K2.5 fp4': { name: 'nvidia/Kimi-K2.5-NVFP4' },
};

/** The model of a row as `simulate` takes it: a name, or the path of its published config.json. */
function modelOf(row: Fields, folder: string): { model: string; quantization?: 'fp8' } | undefined {
  const { name, quantization } = known[`${row.model_path} ${row.precision}`] ?? { name: row.model_path };
  const more = quantization === undefined ? {} : { quantization };
  if (dataFileNames('models').includes(name)) return { model: name, ...more };
  const fixture = fileURLToPath(
    new URL('../test/sim/latency/fixtures/publishedConfigs.jsonl.gz', import.meta.url),
  );
  const line = readText(fixture)
    .split('\n')
    .find((each) => each.includes(`"model": "${name}"`));
  if (line === undefined || row.model_path === 'meta-llama/Llama-3.1-70B') return undefined;
  const { config, side } = JSON.parse(line);
  const place = path.join(folder, name.replaceAll('/', '--'));
  fs.mkdirSync(place, { recursive: true });
  fs.writeFileSync(path.join(place, 'config.json'), JSON.stringify(config));
  if (side !== null) fs.writeFileSync(path.join(place, 'hf_quant_config.json'), JSON.stringify(side));
  return { model: path.join(place, 'config.json'), ...more };
}

function rowsOf(file: string): readonly Fields[] {
  const [head, ...lines] = readText(file).trim().split('\n');
  const names = head.trim().split(',');
  return lines.map((line) =>
    Object.fromEntries(
      line
        .trim()
        .split(',')
        .map((value, i) => [names[i], value]),
    ),
  );
}

/** @param latencyModel the model of time of all predictions; the default unless given. @param most rows that are predicted */
export async function siliconRows(
  file: string,
  most: number,
  latencyModel: LatencyBackend | undefined,
  told: (row: SiliconRow) => void,
): Promise<readonly SiliconRow[]> {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-silicon-'));
  const hashed = rowsOf(file)
    .map((row) => ({ row, hash: createHash('sha256').update(row.id).digest('hex') }))
    .sort((a, b) => (a.hash.slice(32) < b.hash.slice(32) ? -1 : 1));
  const out: SiliconRow[] = [];
  let predicted = 0;
  for (const { row, hash } of hashed) {
    const users = Number(/silicon_concurrency=(\d+)/.exec(row.silicon_data_source)?.[1] ?? row.batch_size);
    const dp = Number(row.attention_dp_size || 1);
    const point = {
      id: row.id,
      card: cards[row.system] ?? row.system,
      model: row.model_path,
      precision: row.precision,
      isl: Number(row.isl),
      osl: Number(row.osl),
      users,
      tp: Number(row.tp_size),
      dp,
      fitted: /^[0-3]/.test(hash),
      measuredTtftMs: Number(row.silicon_ttft_ms),
      measuredTpotMs: Number(row.silicon_tpot_ms),
    };
    const isAlone = Number(row.moe_ep_size || 1) > 1 && dp === 1;
    const served = row.backend === 'vllm' && row.mode === 'agg' ? modelOf(row, folder) : undefined;
    const reason =
      row.backend !== 'vllm'
        ? `engine ${row.backend}`
        : row.mode !== 'agg'
          ? 'prefill and decode apart'
          : cards[row.system] === undefined
            ? `card ${row.system}`
            : served === undefined
              ? 'no published configuration of the model in that precision'
              : isAlone
                ? 'experts over GPUs without data parallel ranks'
                : !(point.measuredTtftMs > 0 && point.measuredTpotMs > 0)
                  ? 'no measured time'
                  : undefined;
    if (reason !== undefined) out.push({ ...point, reason });
    else if (predicted < most) {
      predicted++;
      const one = { ...point, ...(await predictionOf(point, served!, latencyModel)) };
      out.push(one);
      told(one);
    } else out.push({ ...point, reason: 'left out by --rows' });
  }
  fs.rmSync(folder, { recursive: true, force: true });
  return out;
}

async function predictionOf(
  point: Omit<SiliconRow, 'reason'>,
  { model, quantization }: { model: string; quantization?: 'fp8' },
  latencyModel: LatencyBackend | undefined,
): Promise<Pick<SiliconRow, 'ttftMs' | 'tpotMs' | 'reason'>> {
  // uniform over 80 to 100 % of the nominal length: its mean and deviation
  const length = (nominal: number) => ({
    mean: Math.round(0.9 * nominal),
    stdDev: Math.round(0.0577 * nominal),
    min: 1,
    max: nominal,
  });
  try {
    const { metrics } = await simulate({
      model,
      hardware: point.card,
      tp: point.tp,
      ...(point.dp > 1 ? { dp: point.dp } : {}),
      ...(latencyModel === undefined ? {} : { latency: { model: latencyModel } }),
      engine: {
        maxBatchedTokens: 8192,
        maxSequences: 1024,
        ...(quantization === undefined ? {} : { quantization }),
      },
      workload: {
        concurrency: point.users,
        requests: 4 * point.users,
        prompt: length(point.isl),
        output: length(point.osl),
      },
    });
    return { ttftMs: metrics.ttft_mean_ms, tpotMs: metrics.itl_mean_ms };
  } catch (error) {
    if (!(error instanceof TierKVError)) throw error;
    return { reason: error.code === 'TKV_CAPACITY' ? 'does not fit the memory' : `refused: ${error.code}` };
  }
}

const median = (values: readonly number[]): number => {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length === 0 ? Number.NaN : sorted[Math.floor((sorted.length - 1) / 2)];
};
const percent = (share: number): string => (Number.isNaN(share) ? '-' : (100 * share).toFixed(1));

/** The tables of the page: cards and families, loads, reasons of exclusion, and the ten rows that are worst. */
export function siliconText(rows: readonly SiliconRow[], latencyModel: string): string {
  const done = rows.filter(({ tpotMs }) => tpotMs !== undefined);
  const judging = done.filter(({ fitted }) => !fitted);
  const errorOf =
    (of: 'Ttft' | 'Tpot') =>
    (row: SiliconRow): number =>
      (of === 'Ttft' ? row.ttftMs! / row.measuredTtftMs : row.tpotMs! / row.measuredTpotMs) - 1;
  const cells = (group: readonly SiliconRow[]): string =>
    (['Tpot', 'Ttft'] as const)
      .map((of) => {
        const errors = group.map(errorOf(of));
        const within = (share: number): number =>
          errors.filter((each) => Math.abs(each) <= share).length / errors.length;
        const mean = errors.reduce((sum, each) => sum + Math.abs(each), 0) / errors.length;
        const cell = [median(errors.map(Math.abs)), mean, median(errors), within(0.1), within(0.2)];
        return cell.map(percent).join(' | ');
      })
      .join(' | ');
  const table = (title: string, keyOf: (row: SiliconRow) => string): string => {
    const keys = [...new Set(judging.map(keyOf))].sort();
    const lines = keys.map((key) => {
      const group = judging.filter((row) => keyOf(row) === key);
      return `| ${key} | ${group.length} | ${cells(group)} |`;
    });
    const of = (name: string): string => `${name} median | mean | bias | in 10 % | in 20 %`;
    return [
      `| ${title} | rows | ${of('TPOT')} | ${of('TTFT')} |`,
      `|---|${'--:|'.repeat(11)}`,
      ...lines,
    ].join('\n');
  };
  const reasons = new Map<string, number>();
  for (const { reason } of rows)
    if (reason !== undefined) reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
  const excluded = [...reasons]
    .sort((a, b) => b[1] - a[1])
    .map(([reason, count]) => `| ${reason} | ${count} |`);
  const load = ({ users }: SiliconRow): string =>
    users <= 8 ? 'to 8 users' : users <= 64 ? '9 to 64 users' : 'more users';
  const worst = [...judging]
    .sort((a, b) => Math.abs(errorOf('Tpot')(b)) - Math.abs(errorOf('Tpot')(a)))
    .slice(0, 10);
  return `## Served points of vLLM

${done.length} points of \`silicon_sample.csv\` (PyPI aisimulate 0.13.0.dev202610270000000085, Apache-2.0) were simulated from defaults with the
latency model \`${latencyModel}\`. ${done.length - judging.length} of them may have been fitted to, only in the host's part of a step and of a request;
${judging.length} judge, and the tables are of these. Errors are in percent of what was measured: median and mean of their absolute values, the
median with its sign, and the share of rows within 10 and 20 %. Each run has four requests a user, who all begin at once; a
benchmark of ten makes less of that burst, so that predicted TTFT is high at many users.

${table('card, model, precision', ({ card, model, precision }) => `${card}, ${model} ${precision}`)}
${table('load', load).split('\n').slice(2).join('\n')}
${table('parallelism', ({ tp, dp }) => `TP ${tp}${dp > 1 ? `, ${dp} ranks` : ''}`)
  .split('\n')
  .slice(2)
  .join('\n')}
${table('prompt', ({ isl }) => `prompts of ${isl < 4000 ? 'less than 4,000' : '4,000 and more'} tokens`)
  .split('\n')
  .slice(2)
  .join('\n')}

| not predicted | rows |
|---|--:|
${excluded.join('\n')}

| the ten worst | TPOT measured | predicted | TTFT measured | predicted |
|---|--:|--:|--:|--:|
${worst.map((row) => `| ${row.id} | ${row.measuredTpotMs.toFixed(1)} | ${row.tpotMs!.toFixed(1)} | ${row.measuredTtftMs.toFixed(0)} | ${row.ttftMs!.toFixed(0)} |`).join('\n')}
`;
}
