/**
 * Makes data/kernels from the measured tables of the Python package aisimulate: `npx node tools/kernelTables.ts FOLDER`, where FOLDER is
 * `aisimulate_core` of the unpacked wheel that `pip download --only-binary :all: --pre --no-deps` brings. Kept are the shapes that
 * the models which ship have, and those of `test/sim/latency/fixtures/publishedConfigs.jsonl.gz` that were served and measured: all rows of
 * a matrix product for those widths and depths and for the nearest ones where a shape was not measured, all lengths and batches of
 * attention for those heads. Each card has the newest table of each kind; its file names them with their hashes.
 */

import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { asyncBufferFromFile, parquetReadObjects } from 'hyparquet';
import { compressors } from 'hyparquet-compressors';
import { loadHardware, loadModel, modelNames, readText } from '../src/sim/build/dataFiles.ts';
import { kernelSchema, nearest, packed } from '../src/sim/latency/kernelTables.ts';
import {
  localKvHeads,
  type ModelConfig,
  parseModelConfig,
  trueHeadDim,
} from '../src/sim/latency/modelConfig.ts';
import { engineShape } from '../src/sim/latency/physics.ts';
import { weightFormatOf } from '../src/sim/latency/quantisation.ts';

const version = '0.13.0.dev202610270000000085';
const folder = process.argv[2];
if (folder === undefined) throw new Error('Give the folder aisimulate_core of the unpacked wheel.');
const cards: Readonly<Record<string, string>> = {
  h100_sxm: 'H100',
  h200_sxm: 'H200',
  a100_sxm: 'A100-SXM',
  l40s: 'L40S',
  b200_sxm: 'B200',
  rtx_pro_6000_server: 'RTX-PRO-6000',
};
/** Models that were served in `silicon_sample.csv`, beside models that ship. */
const served = [
  ...[
    'MiniMaxAI/MiniMax-M2.5',
    'nvidia/MiniMax-M2.5-NVFP4',
    'moonshotai/Kimi-K2.5',
    'nvidia/Kimi-K2.5-NVFP4',
  ],
  ...['Qwen/Qwen3-235B-A22B-FP8', 'Qwen/Qwen3-32B-FP8', 'openai/gpt-oss-120b', 'zai-org/GLM-5-FP8'],
  'Qwen/Qwen3.5-397B-A17B',
];
const degrees = [1, 2, 4, 8];

type Row = Readonly<Record<string, string | number | bigint>>;
const num = (row: Row, key: string): number => Number(row[key]);

/** The newest table of a kind, by its version. */
async function newest(
  card: string,
  kind: string,
  file: string,
  files: string[],
  all = false,
): Promise<readonly Row[]> {
  const place = path.join(folder, 'systems/data', card, kind, 'vllm');
  if (!fs.existsSync(place)) return [];
  const parts = (text: string): number =>
    text.split('.').reduce((sum, part) => sum * 1000 + Number.parseInt(part, 10), 0);
  const versions = fs
    .readdirSync(place)
    .filter((each) => fs.existsSync(path.join(place, each, file)))
    .sort((a, b) => parts(b) - parts(a));
  const rows: Row[] = [];
  for (const each of all ? versions : versions.slice(0, 1)) {
    const name = path.join(place, each, file);
    const digest = createHash('sha256').update(fs.readFileSync(name)).digest('hex');
    files.push(`${path.relative(folder, name)} sha256 ${digest}`);
    const part = (await parquetReadObjects({ file: await asyncBufferFromFile(name), compressors })) as Row[];
    for (const row of part) rows.push(row);
  }
  return rows;
}

function models(): readonly ModelConfig[] {
  const fixture = fileURLToPath(
    new URL('../test/sim/latency/fixtures/publishedConfigs.jsonl.gz', import.meta.url),
  );
  const lines = readText(fixture)
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  const others = served.map((name) => {
    const { config, side } = lines.find((line) => line.model === name);
    const beside = side === null ? undefined : { text: JSON.stringify(side), file: 'hf_quant_config.json' };
    return parseModelConfig(JSON.stringify(config), name, name, false, beside);
  });
  return [...modelNames().map((name) => loadModel(name)), ...others];
}

const formats: Readonly<Record<string, string>> = {
  bfloat16: 'bfloat16',
  float16: 'bfloat16',
  fp8: 'fp8',
  fp8_block: 'fp8_block',
  nvfp4: 'nvfp4',
  int4_wo: 'int4',
  w4a16_mxfp4: 'mxfp4',
  int8_wo: 'int8',
};

/** Rows in groups of one key, each sorted by a size, the least time of each size. */
function series(
  rows: readonly Row[],
  keyOf: (row: Row) => string,
  size: (row: Row) => number,
  withKernel = false,
): Map<string, { sizes: number[]; us: number[]; kernels?: number[]; first: Row }> {
  const groups = new Map<string, Row[]>();
  for (const row of rows) {
    const key = keyOf(row);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [row]);
    else group.push(row);
  }
  const names: string[] = [];
  const out = new Map<string, { sizes: number[]; us: number[]; kernels?: number[]; first: Row }>();
  for (const [key, group] of groups) {
    const best = new Map<number, Row>();
    for (const row of group) {
      const other = best.get(size(row));
      if (num(row, 'latency') > 0 && (other === undefined || num(row, 'latency') < num(other, 'latency')))
        best.set(size(row), row);
    }
    const sizes = [...best.keys()].filter((each) => each > 0).sort((a, b) => a - b);
    if (sizes.length === 0) continue;
    const kernels = sizes.map((each) => {
      const name = String(best.get(each)!.kernel_source);
      if (!names.includes(name)) names.push(name);
      return names.indexOf(name);
    });
    const isOne = new Set(kernels).size === 1;
    out.set(key, {
      sizes,
      us: packed(sizes.map((each) => 1000 * num(best.get(each)!, 'latency'))),
      ...(withKernel && !isOne ? { kernels } : {}),
      first: group[0],
    });
  }
  return out;
}

/** A grid over requests and tokens for each key. */
function grids(rows: readonly Row[], keyOf: (row: Row) => string, tokens: (row: Row) => number) {
  const out = new Map<
    string,
    { requests: number[]; rows: { sizes: number[]; us: number[] }[]; first: Row }
  >();
  const each = series(rows, (row) => `${keyOf(row)}|${num(row, 'batch_size')}`, tokens);
  const sorted = [...each].sort((a, b) => num(a[1].first, 'batch_size') - num(b[1].first, 'batch_size'));
  for (const [, { first, sizes, us }] of sorted) {
    const key = keyOf(first);
    const grid = out.get(key) ?? { requests: [], rows: [], first };
    grid.requests.push(num(first, 'batch_size'));
    grid.rows.push({ sizes, us });
    out.set(key, grid);
  }
  return [...out.values()];
}

const far = (a: readonly number[], b: readonly number[]): number =>
  a.reduce((sum, each, i) => sum + Math.log(each / b[i]) ** 2, 0);

async function cardFile(card: string, name: string): Promise<string> {
  const files: string[] = [];
  const hardware = loadHardware(name);
  const all = models();
  const shapes = all.flatMap((model) =>
    degrees
      .filter((tp) => model.heads % tp === 0)
      .map((tp) => ({ model, tp, shape: engineShape(model, hardware, { tp, dp: 1 }) })),
  );
  // matrix products: the format of the model, and FP8 of one of 16 bits. A format whose least time is a launch from the host
  // was measured without a captured graph (B200's fp8_block of 0.27.1: 146 us for any shape): the next older table has it
  const every = await newest(card, 'gemm', 'gemm_perf.parquet', files, true);
  const least = new Map<string, number>();
  const ofFormat = (row: Row): string => `${row.gemm_dtype}|${row.version}`;
  for (const row of every)
    least.set(
      ofFormat(row),
      Math.min(least.get(ofFormat(row)) ?? Number.POSITIVE_INFINITY, num(row, 'latency')),
    );
  const taken = new Map<string, unknown>();
  for (const row of every) {
    const isKernel = least.get(ofFormat(row))! < 0.05;
    if (isKernel && !taken.has(String(row.gemm_dtype))) taken.set(String(row.gemm_dtype), row.version);
  }
  const products = every.filter((row) => taken.get(String(row.gemm_dtype)) === row.version);
  const isWanted = new Set<string>();
  const groups = [
    ...series(
      products,
      (row) => `${row.gemm_dtype}|${row.n}|${row.k}`,
      (row) => num(row, 'm'),
      true,
    ),
  ];
  for (const { model, shape } of shapes) {
    const own = weightFormatOf(model);
    const wanted = own === 'bfloat16' ? ['bfloat16', 'fp8'] : ['bfloat16', own];
    for (const format of wanted) {
      const same = groups.filter(([, { first }]) => formats[String(first.gemm_dtype)] === format);
      for (const { depth, columns } of [...shape.tokenMatrices, shape.headMatrix]) {
        const near = nearest(
          same,
          ([, { first }]) => far([num(first, 'n'), num(first, 'k')], [columns, depth]),
          4,
        );
        for (const { one } of near) isWanted.add(one[0]);
      }
    }
  }
  const gemm = groups
    .filter(([key]) => isWanted.has(key))
    .map(([, { first, ...rest }]) => ({
      format: formats[String(first.gemm_dtype)],
      n: num(first, 'n'),
      k: num(first, 'k'),
      ...rest,
    }));
  // experts: of these shapes, one way of spreading tokens
  const mixture = (await newest(card, 'moe', 'moe_perf.parquet', files, true)).filter(
    (row) =>
      formats[String(row.moe_dtype)] !== undefined &&
      num(row, 'moe_tp_size') <= 8 &&
      num(row, 'moe_ep_size') <= 16,
  );
  const spread = ['power_law_1.2', 'power_law_1.01', 'balanced'];
  const shapeOf = (row: Row): string =>
    ['moe_dtype', 'hidden_size', 'inter_size', 'topk', 'num_experts', 'moe_tp_size', 'moe_ep_size']
      .map((key) => row[key])
      .join('|');
  const best = new Map<string, number>();
  for (const row of mixture) {
    const rank = spread.indexOf(String(row.distribution));
    best.set(shapeOf(row), Math.min(best.get(shapeOf(row)) ?? 9, rank < 0 ? 9 : rank));
  }
  const newer = new Map<string, unknown>();
  for (const row of mixture) if (!newer.has(shapeOf(row))) newer.set(shapeOf(row), row.version);
  const kept = mixture.filter((row) => spread.indexOf(String(row.distribution)) === best.get(shapeOf(row)));
  const experts = [...series(kept, shapeOf, (row) => num(row, 'num_tokens'), true).values()].map(
    ({ first, ...rest }) => ({
      format: formats[String(first.moe_dtype)],
      hidden: num(first, 'hidden_size'),
      width: num(first, 'inter_size'),
      topk: num(first, 'topk'),
      experts: num(first, 'num_experts'),
      tp: num(first, 'moe_tp_size'),
      ep: num(first, 'moe_ep_size'),
      ...rest,
    }),
  );
  // attention: heads of these models
  const heads = new Set(
    shapes.map(({ model, tp }) => `${model.heads / tp}|${localKvHeads(model, tp)}|${trueHeadDim(model)}`),
  );
  const headsOf = (row: Row): string =>
    `${row.num_heads}|${num(row, 'num_key_value_heads') || row.num_heads}|${row.head_dim}`;
  const attention = async (file: string, tokens: (row: Row) => number) => {
    const rows = (await newest(card, 'attention', file, files)).filter((row) => heads.has(headsOf(row)));
    const key = (row: Row): string => `${headsOf(row)}|${row.window_size ?? 0}|${row.kv_cache_dtype}`;
    return grids(rows, key, tokens).map(({ first, ...rest }) => ({
      heads: num(first, 'num_heads'),
      kvHeads: num(first, 'num_key_value_heads') || num(first, 'num_heads'),
      headDim: num(first, 'head_dim'),
      window: num(first, 'window_size') || 0,
      kvBytes: String(first.kv_cache_dtype) === 'fp8' ? 1 : 2,
      ...rest,
    }));
  };
  const latent = async (file: string, tokens: (row: Row) => number) => {
    const rows = await newest(card, 'mla', file, files);
    const key = (row: Row): string => `${row.num_heads}|${row.kv_cache_dtype}|${row.gemm_type}`;
    return grids(rows, key, tokens)
      .map(({ first, ...rest }) => ({
        heads: num(first, 'num_heads'),
        kvBytes: String(first.kv_cache_dtype) === 'fp8' ? 1 : 2,
        format: formats[String(first.gemm_type)],
        ...rest,
      }))
      .filter(({ heads: count }) => [8, 16, 32, 64, 128].includes(count));
  };
  const isl = (row: Row): number => num(row, 'isl');
  const context = (row: Row): number => num(row, 'step') + num(row, 'isl');
  const reductions = (await newest(card, 'comm', 'custom_allreduce_perf.parquet', files)).filter(
    (row) => String(row.backend ?? 'vllm_graph') === 'vllm_graph',
  );
  const file = {
    schema: kernelSchema,
    gpu: name,
    source: `PyPI aisimulate ${version} (Apache-2.0, LICENSE-aisimulate), aisimulate_core`,
    gemm,
    experts,
    prefill: await attention('context_attention_perf.parquet', isl),
    decode: await attention('generation_attention_perf.parquet', context),
    latentPrefill: await latent('mla_context_module_perf.parquet', isl),
    latentDecode: await latent('mla_generation_module_perf.parquet', context),
    reduce: [
      ...series(
        reductions,
        (row) => String(row.num_gpus),
        (row) => 2 * num(row, 'message_size'),
      ).values(),
    ].map(({ first, ...rest }) => ({ gpus: num(first, 'num_gpus'), ...rest })),
    files,
  };
  return JSON.stringify(file);
}

const out = fileURLToPath(new URL('../data/kernels/', import.meta.url));
fs.mkdirSync(out, { recursive: true });
let bytes = 0;
for (const [card, name] of Object.entries(cards)) {
  const text = await cardFile(card, name);
  const zipped = gzipSync(text, { level: 9 });
  zipped[9] = 3; // the same file on every system
  fs.writeFileSync(path.join(out, `${name.toLowerCase()}.json.gz`), zipped);
  bytes += zipped.length;
  process.stdout.write(`${name}: ${text.length} characters, ${zipped.length} bytes\n`);
}
process.stdout.write(`${bytes} bytes in all\n`);
