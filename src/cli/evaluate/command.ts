/**
 * `tierkv evaluate POLICY...`: policies scored on a suite of workloads, and a page on what went wrong and
 * why. The simulator is loaded only once it is asked for.
 */

import { Command } from 'commander';
import { requireWritableTargets } from '../../io/files/results.ts';
import type { PoolLimits } from '../../io/workerPool.ts';
import { configError } from '../../runtime/errors.ts';
import { numberWithin, type OptionValues } from '../flags.ts';
import { notes } from '../help.ts';
import { jsonOption } from '../optionRows.ts';
import { interruptible } from '../process.ts';
import { checkReport, reportAbout, reportFlags } from '../reportOption.ts';
import { workersAbout, workersFlags, workersOption } from '../workersOption.ts';

type Given = OptionValues & { readonly json?: string };

const helpEnd = `
A POLICY is a bundle (.json), a program for one slot (.star, .wasm, .js with --slot), or a preset such as
routing/lor; --presets lists them. "tierkv evaluate describe" prints what policies may read and do, ready for
a prompt; with --schema the JSON schema of a bundle.

Scores are gains over the plan's baseline: 0 is as good, 0.1 is a tenth better. With several policies a
ranking is printed. With --latency all or --workloads perturbed it says whether the ranking holds when the
model of time, or the workload, is another one.
`;

export function evaluateCommand(): Command {
  return new Command('evaluate')
    .description('Score policies on suites of workloads, and say what went wrong and why.')
    .argument('[policy...]', 'bundle, program or preset; or describe')
    .option('--slot <name>', 'slot of a program', 'routing')
    .option('--presets', 'list the presets, or with policies score them as well')
    .option(
      '--plan <name>',
      'routing, admission, scaling, or a .json file with workloads and objectives',
      'routing',
    )
    .option('--suite <name>', 'train, validation or hidden', 'train')
    .option(
      '--seeds <n,n,...>',
      "other seeds than the suite's: does a result hold on seeds that were not chosen?",
    )
    .option('--case <id>', 'case that is told (default: the one with the lowest score)')
    .option(
      '--summary <strategy>',
      'issue_focused, decision_audit, counterfactual, pattern_mining',
      'issue_focused',
    )
    .option('--max-tokens <n>', 'longest summary', '1500')
    .option('--regrets <n>', 'routing decisions that are tried otherwise (default: 6; for frameworks 1)')
    .option('--trace <file.jsonl>', 'write the decisions of that case')
    .option(
      '--trace-level <name>',
      'minimal (metrics and anomalies), decisions, or full with events as well',
      'decisions',
    )
    .option('--latency <models>', 'all, or models of time separated by commas: does the ranking hold?')
    .option('--workloads <how>', 'perturbed: does the ranking hold for workloads that differ by up to 20 %?')
    .option('--cache <folder>', 'keep results there')
    .option(workersFlags, workersAbout)
    .option('--limit <time>', 'timeout of one simulation, as 2m, or in seconds', '120')
    .addOption(jsonOption())
    .option(reportFlags, reportAbout)
    .option('--serve', 'answer frameworks: a request a line on stdin, an answer a line on stdout')
    .option('--http <port>', 'with --serve: over HTTP instead; 0 for any free port')
    .option('--host <name>', 'with --http', '127.0.0.1')
    .option('--skydiscover', 'print the one JSON object that SkyDiscover reads')
    .option('--schema', 'with describe: the JSON schema of a bundle')
    .addHelpText('after', notes(helpEnd))
    .action(async (policies: string[], options: Given, command: Command) => {
      refuseIdle(policies, command);
      if (policies[0] === 'describe') {
        const { describe } = await import('./page.ts');
        process.stdout.write(describe(options.schema === true, typeof options.json !== 'undefined'));
        return;
      }
      const { workers, server } = workersOption(options);
      const limits = {
        workers,
        wallMs:
          1000 * (numberWithin(options, 'limit', '--limit', { min: 0.001, max: 1e6, counts: 's' }) ?? 120),
        heapMiB: 4096,
      };
      if (options.serve === true || options.skydiscover === true) {
        await interruptible((signal) => toFrameworks(policies, options, limits, server, signal));
        return;
      }
      requireWritableTargets(
        { '--json': options.json, '--trace': options.trace, '--report': options.report },
        { '--plan': options.plan, ...Object.fromEntries(policies.map((file) => [file, file])) },
      );
      await checkReport(options.report);
      const { runEvaluate } = await import('./run.ts');
      await runEvaluate(policies, { ...options, regrets: options.regrets ?? '6' }, limits, server);
    });
}

/** `--serve` and `--skydiscover`. */
async function toFrameworks(
  policies: readonly string[],
  options: OptionValues,
  limits: PoolLimits,
  server: string | undefined,
  signal: AbortSignal,
): Promise<void> {
  const { answerOnce, serve } = await import('./serve.ts');
  const port = whole(options, 'http', '--http', 0, 65_535);
  const served = {
    plan: String(options.plan),
    limits,
    server,
    regrets: whole(options, 'regrets', '--regrets', 0, 10_000) ?? 1,
    ...(typeof options.cache === 'string' ? { cacheFolder: options.cache } : {}),
    ...(port === undefined ? {} : { http: { host: String(options.host), port } }),
  };
  if (options.skydiscover !== true) return serve(served, signal);
  const answer = await answerOnce(served, policies, String(options.slot), String(options.suite));
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}

function whole(
  options: OptionValues,
  name: string,
  flag: string,
  min: number,
  max: number,
): number | undefined {
  return numberWithin(options, name, flag, { min, max, whole: true });
}

// Words and options of `tierkv evaluate` that would do nothing beside the others are refused before anything
// is done: who gives them expects something else than what would happen.

const served = ['plan', 'regrets', 'cache', 'workers', 'limit'];

const compared = ['slot', 'presets', 'suite', 'seeds', 'plan', 'cache', 'workers', 'limit', 'json'];
const worlds = ['latency', 'workloads', ...compared];

/** Modes in which evaluate writes no page, and the options that each reads. */
const modes = {
  describe: ['schema', 'json'],
  '--skydiscover': ['skydiscover', 'slot', 'suite', ...served],
  '--serve': ['serve', 'http', 'host', ...served],
  '--latency': worlds,
  '--workloads': worlds,
} as const;

/** Options that only say more about another one. */
const companions: readonly (readonly [option: string, of: string])[] = [
  ['--trace-level', '--trace'],
  ['--http', '--serve'],
  ['--host', '--http'],
  ['--schema', 'describe'],
];

/** @throws TKV_CONFIG with the first word or option that would do nothing */
function refuseIdle(policies: readonly string[], command: Command): void {
  const given = command.options.filter((option) => {
    return command.getOptionValueSource(option.attributeName()) === 'cli';
  });
  const isGiven = (name: string): boolean =>
    name === 'describe' ? policies[0] === name : given.some(({ long }) => long === name);
  for (const [option, of] of companions) {
    if (!isGiven(option) || isGiven(of)) continue;
    throw configError(option, `is given without ${of}`, `Add ${of}, or leave it out.`);
  }
  const mode = (['describe', '--skydiscover', '--serve', '--latency', '--workloads'] as const).find(isGiven);
  if (mode === undefined) {
    // without a policy the presets are listed, and nothing is scored
    if (!isGiven('--presets') || policies.length > 0) return;
    const idle = given.find(({ long }) => long !== '--presets');
    if (idle === undefined) return;
    const remedy = 'Name a policy, or leave it out.';
    throw configError(idle.long ?? idle.flags, 'does nothing where --presets lists the presets', remedy);
  }
  const [extra] = mode === 'describe' ? policies.slice(1) : mode === '--serve' ? policies : [];
  if (extra !== undefined) {
    throw configError(
      'policy',
      `is ${JSON.stringify(extra)} beside ${mode}, which takes none`,
      'Leave it out.',
    );
  }
  const reads: readonly string[] = modes[mode];
  const idle = given.find((option) => !reads.includes(option.attributeName()));
  if (idle === undefined) return;
  throw configError(idle.long ?? idle.flags, `does nothing beside ${mode}`, 'Leave one of them out.');
}
