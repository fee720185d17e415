/** `tierkv plan`: a question in options; the library searches, and what it found is printed. */

import { Command } from 'commander';
import { requireWritableTargets, writeResultJson, writeText } from '../../io/files/results.ts';
import { startProgressBar } from '../../io/printing/progress.ts';
import { configError, renamed, TierKVError } from '../../runtime/errors.ts';
import { tierTitle } from '../../runtime/tier/tier.ts';
import { sizedTierNames } from '../../sim/links/machineTiers.ts';
import type { PlanQuestion } from '../../studies/plan/question.ts';
import { numberWithin } from '../flags.ts';
import { notes } from '../help.ts';
import { jsonOption } from '../optionRows.ts';
import { printText } from '../output.ts';
import { checkReport, reportAbout, reportFlags, reportTo } from '../reportOption.ts';
import { withRunner, workersAbout, workersFlags, workersOption } from '../workersOption.ts';

const helpEnd = `
A target bounds a figure: ttft, itl or e2e with _mean, _p50, _p90, _p95 or _p99, such as ttft_p99=500ms.

A price is in USD an hour: of a GPU (--price H100=2.5), or of a GiB of host memory or disk (--price DDR=0.004,
--price NVMe=0.0001). Without prices fewer GPUs are cheaper. Exit code 3: no deployment meets the targets.
`;

/** Exit code of a question that no deployment answers. */
const NOT_FOUND = 3;

function collect(value: string, before: readonly string[]): string[] {
  return [...before, value];
}

interface PlanFlags {
  readonly model: string;
  readonly workload?: string;
  readonly target: readonly string[];
  readonly price: readonly string[];
  readonly out?: string;
  readonly json?: string;
  readonly assumePlainAttention?: boolean;
  readonly [name: string]: string | readonly string[] | boolean | undefined;
}

export function planCommand(): Command {
  return new Command('plan')
    .description('Find the cheapest deployment that meets targets, and say how sure that is.')
    .argument('[workload]', 'specification or recorded trace (default: a preset, see --workload)')
    .requiredOption('--model <name>', 'model, or the path of a config.json')
    .option('--assume-plain-attention', 'take unknown layer keys of a config.json as ordinary attention')
    .requiredOption('--target <figure=time>', 'latency target, as ttft_p99=500ms; repeatable', collect, [])
    .option(
      '--workload <name>',
      'chat (conversations), chatbot, contentgen, summarization, multidoc or distribution',
    )
    .option(
      '--rate <n>',
      'arrival rate of the preset in requests per second; of conversations all rounds count',
    )
    .option('--num-requests <n>', 'requests of a full run (default: two minutes, 1000 to 6000)')
    .option('--price <name=USD>', 'USD an hour of a GPU, or of a GiB of DDR or NVMe; repeatable', collect, [])
    .option('--gpu <names>', "GPUs that may be used (default: those with a price, else the model's)")
    .option('--tp <list>', 'tensor parallel sizes (default: 1,2,4,8)')
    .option('--ddr <list>', 'KV cache in host memory per instance (default: 0,128GiB,512GiB)')
    .option('--nvme <list>', 'KV cache on disk per instance (default: 0,4096GiB)')
    .option('--ddr-class <name>', 'device of host memory, as tierkv simulate has it')
    .option('--ddr-gbps <n>', 'bandwidth of host memory in GB/s')
    .option('--nvme-class <name>', 'device of the disk, such as sata_ssd')
    .option('--nvme-gbps <n>', 'bandwidth of the disk in GB/s')
    .option('--roles <list>', 'shared or split (disaggregated prefill and decode) (default: both)')
    .option('--max-gpus <n>', 'maximum GPUs (default: 64)')
    .option('--latency-model <name>', 'model of time that decides (default: calibrated)')
    .option('--seed <n>', 'random key (default: 42)')
    .option('--seeds <n>', 'further seeds on which the answer has to hold (default: 3)')
    .option('--budget <time>', 'time that the search may take, as 3m, or in seconds (default: 90)')
    .option(workersFlags, workersAbout)
    .option('--out <file.yaml>', 'write the deployment for tierkv simulate --deployment')
    .addOption(jsonOption())
    .option(reportFlags, reportAbout)
    .addHelpText('after', notes(helpEnd))
    .action(async (workload: string | undefined, flags: PlanFlags) => {
      requireWritableTargets(
        { '--out': flags.out, '--json': flags.json, '--report': flags.report },
        { WORKLOAD: workload },
      );
      await checkReport(flags.report);
      const { server, workers } = workersOption(scalars(flags));
      const { plan } = await import('../../studies/plan/plan.ts');
      const { parseTarget } = await import('../../studies/plan/targets.ts');
      const { answerText } = await import('./report.ts');
      const targets = Object.fromEntries(flags.target.map((text) => parseTarget(text)));
      if (flags.target.length === 0) {
        throw configError('--target', 'is missing', 'Give at least one, such as ttft_p99=500ms.');
      }
      const question: PlanQuestion = {
        model: flags.model,
        ...(flags.assumePlainAttention === true ? { assumePlainAttention: true } : {}),
        targets,
        workload: workloadOf(workload, flags),
        ...pricesOf(flags.price),
        ...listsOf(flags),
        ...numbersOf(flags),
        ...devicesOf(flags),
      };
      using bar = startProgressBar('simulations');
      const answer = await withRunner(
        server,
        { workers, wallMs: Infinity },
        (line) => bar.notice(line),
        (runner) =>
          inQuestion(() =>
            plan(question, {
              runner,
              progress: ({ overall, simulations, stage, best }) => {
                const note = best === undefined ? stage : `${stage}, ${best} is enough so far`;
                bar.update({ share: overall, done: simulations, note });
              },
            }),
          ),
      );
      if (flags.json !== undefined) writeResultJson(flags.json, 'plan', answer);
      if (flags.out !== undefined && answer.deploymentFile !== undefined) {
        writeText(flags.out, answer.deploymentFile);
      }
      if (typeof flags.report === 'string') {
        const { planReport } = await import('../../observe/report/planReport.ts');
        await reportTo(flags.report, (command) => planReport(answer, command, flags.out));
      }
      printText(answerText(answer, flags.out));
      if (answer.choice === undefined) process.exitCode = NOT_FOUND;
    });
}

/** Options by the fields of a question that they say. */
const flagOfField: Readonly<Record<string, string>> = {
  assumePlainAttention: '--assume-plain-attention',
  workload: '--workload',
  rate: '--rate',
  requests: '--num-requests',
  targets: '--target',
  gpus: '--gpu',
  prices: '--price',
  tensorParallel: '--tp',
  roles: '--roles',
  maxGpus: '--max-gpus',
  latencyModel: '--latency-model',
  seed: '--seed',
  seeds: '--seeds',
  budgetS: '--budget',
  ...Object.fromEntries(
    sizedTierNames.flatMap((tier) => [
      [`${tier}Price`, `--price ${tierTitle(tier)}`],
      [`${tier}Gib`, `--${tier}`],
      [`${tier}Class`, `--${tier}-class`],
      [`${tier}Gbps`, `--${tier}-gbps`],
    ]),
  ),
};

/** Runs `act`. Its errors about a field of the question, or about an entry of one, name its option. */
async function inQuestion<T>(act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    const field = error instanceof TierKVError ? error.field : undefined;
    const of = (name: string): string | undefined => flagOfField[name.replace(/[[.].*$/, '')];
    const flag = field === undefined ? undefined : of(field);
    throw field === undefined || flag === undefined
      ? error
      : renamed({ ...flagOfField, [field]: flag }, error);
  }
}

function scalars(flags: PlanFlags): Record<string, string | undefined> {
  return Object.fromEntries(
    Object.entries(flags).filter((entry): entry is [string, string] => typeof entry[1] === 'string'),
  );
}

function workloadOf(file: string | undefined, flags: PlanFlags): object {
  const values = scalars(flags);
  const rate = numberWithin(values, 'rate', '--rate', { min: 1e-6, max: 1e6 });
  const requests = numberWithin(values, 'numRequests', '--num-requests', { min: 100, max: 1e6, whole: true });
  return {
    ...(file === undefined ? {} : { file }),
    ...(flags.workload === undefined ? {} : { preset: flags.workload }),
    ...(rate === undefined ? {} : { rate }),
    ...(requests === undefined ? {} : { requests }),
  };
}

/** `H100=2.5` by the names of GPUs, and of the tiers. */
function pricesOf(texts: readonly string[]): object {
  const prices = new Map<string, number>();
  const tiers: Record<string, number> = {};
  for (const text of texts) {
    const [, name, usd] = /^([^=]+)=\$?([\d.]+)$/.exec(text.trim()) ?? [];
    if (name === undefined || !Number.isFinite(Number(usd))) {
      throw configError('--price', `is "${text}"`, 'Write name=USD an hour, such as H100=2.5.');
    }
    const tier = sizedTierNames.find((each) => each === name.toLowerCase());
    if (tier !== undefined) tiers[`${tier}Price`] = Number(usd);
    else prices.set(name, Number(usd));
  }
  return { ...tiers, ...(prices.size === 0 ? {} : { prices: Object.fromEntries(prices) }) };
}

function listsOf(flags: PlanFlags): object {
  const list = (name: string): string[] | undefined => {
    const text = flags[name];
    return typeof text === 'string' ? text.split(',').map((each) => each.trim()) : undefined;
  };
  const mapped = <T>(name: string, to: string, read: (text: string) => T): object => {
    const texts = list(name);
    return texts === undefined ? {} : { [to]: texts.map(read) };
  };
  return {
    ...mapped('gpu', 'gpus', String),
    ...mapped('roles', 'roles', String),
    ...mapped('tp', 'tensorParallel', gpusOf),
    ...Object.assign(
      {},
      ...sizedTierNames.map((tier) => mapped(tier, `${tier}Gib`, (text) => gibOf(`--${tier}`, text))),
    ),
  };
}

/** Devices of tiers, which have the names of their options in the question, too. */
function devicesOf(flags: PlanFlags): object {
  const values = scalars(flags);
  const fields = sizedTierNames.flatMap((tier) => {
    const gbps = numberWithin(values, `${tier}Gbps`, `--${tier}-gbps`, { min: 1e-6, max: 1e6 });
    const name = values[`${tier}Class`];
    return [
      ...(name === undefined ? [] : [[`${tier}Class`, name]]),
      ...(gbps === undefined ? [] : [[`${tier}Gbps`, gbps]]),
    ];
  });
  return Object.fromEntries(fields);
}

function gpusOf(text: string): number {
  if (/^\d+$/.test(text)) return Number(text);
  throw configError('--tp', `has "${text}" for a number of GPUs`, 'Write whole numbers, as 1,2,4.');
}

/** `128GiB`, `4TiB` or 0 in GiB. */
function gibOf(flag: string, text: string): number {
  const [, digits, unit = ''] = /^(\d+)\s*(GiB|TiB)?$/.exec(text) ?? [];
  if (digits !== undefined && (unit !== '' || Number(digits) === 0)) {
    return Number(digits) * (unit === 'TiB' ? 1024 : 1);
  }
  throw configError(flag, `has "${text}"`, 'Write sizes as 0, 128GiB or 4TiB, with commas between them.');
}

function numbersOf(flags: PlanFlags): object {
  const values = scalars(flags);
  const number = (name: string, flag: string, to: string, counts?: 's'): object => {
    const range = { min: 0, max: 1e15 };
    const value = numberWithin(
      values,
      name,
      flag,
      counts === undefined ? { ...range, whole: true } : { ...range, counts },
    );
    return value === undefined ? {} : { [to]: value };
  };
  return {
    ...number('maxGpus', '--max-gpus', 'maxGpus'),
    ...number('seed', '--seed', 'seed'),
    ...number('seeds', '--seeds', 'seeds'),
    ...number('budget', '--budget', 'budgetS', 's'),
    ...(flags.latencyModel === undefined ? {} : { latencyModel: flags.latencyModel }),
  };
}
