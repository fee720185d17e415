/** `tierkv evolve`: a search for policies that beat every preset, without any language model. */

import { Command } from 'commander';
import { requireWritableTargets } from '../../io/files/results.ts';
import { TierKVError } from '../../runtime/errors.ts';
import { numberWithin } from '../flags.ts';
import { notes } from '../help.ts';
import { jsonOption } from '../optionRows.ts';
import { interruptible } from '../process.ts';
import { checkReport, reportAbout, reportFlags } from '../reportOption.ts';
import { workersAbout, workersFlags, workersOption } from '../workersOption.ts';

const helpEnd = `
The search sees the train suite only. The best of it are scored on the validation suite, where the winner is
chosen; what the hidden suite says of it and of every preset is reported and changes nothing.

The directory of --out gets state.json after each generation, and at the end best.json (the winner, for tierkv
evaluate), report.json, comparison.csv (the winner beside every preset, setting by setting), lineage.jsonl and
the plots. A run that was stopped or killed goes on with --resume and the same options, and ends as if it had
not been.

With --minutes, presets, generations, validation and judging have a share of the time each. What does not fit in
is left out (seeds first, then policies) and told at the end. One policy on one seed of each setting of each
suite runs in any case. A small budget: --minutes 2 --population 4.
`;

export interface EvolveOptions {
  /** Policies to begin with beside the presets. */
  readonly policies: readonly string[];
  /** Slot of each policy that is a program. */
  readonly slot: string;
  readonly plan: string;
  readonly slots: string | undefined;
  readonly features: string;
  readonly out: string;
  readonly resume: boolean;
  readonly plots: boolean;
  readonly report: string | undefined;
  readonly generations: number;
  /** For presets, generations, validation and judging together; Infinity for no limit. */
  readonly minutes: number;
  readonly population: number;
  readonly seed: number;
  readonly workers: number;
  /** Address of the server whose workers run the cases; undefined for threads. */
  readonly server: string | undefined;
  readonly islands: number;
  readonly finalists: number;
  readonly wallMs: number;
  /** Where the report goes too. */
  readonly json: string | undefined;
}

export function evolveCommand(): Command {
  return new Command('evolve')
    .description('Search for policies that beat every preset, without any language model.')
    .argument('[policy...]', 'policies to begin with beside the presets, as tierkv evaluate takes them')
    .option('--slot <name>', 'slot of each policy that is a program', 'routing')
    .requiredOption('--out <dir>', 'directory of the search; made where it is missing')
    .option('--plan <name|file.json>', 'routing, admission, scaling, or a .json file', 'routing')
    .option('--slots <names>', "slots that are searched (default: the plan's)")
    .option('--generations <n>', 'number of generations after the presets (default: 30)')
    .option('--minutes <n>', 'time budget in minutes, presets and final judging included (default: no limit)')
    .option('--population <n>', 'population size (default: 32)')
    .option('--seed <n>', 'seed of the search (default: 1)')
    .option(workersFlags, `${workersAbout}; the result does not depend on it`)
    .option('--islands <n>', 'islands of the archive (default: 3)')
    .option('--features <names>', 'metrics that divide the archive', 'policy_nodes,load_cv')
    .option('--finalists <n>', 'candidates that validation chooses from (default: 12)')
    .option('--wall-ms <time>', 'timeout of one simulation, as 2m, or in milliseconds (default: 60000)')
    .option('--resume', 'go on from the state in the directory')
    .option('--no-plots', 'draw nothing')
    .addOption(jsonOption())
    .option(reportFlags, reportAbout)
    .addHelpText('after', notes(helpEnd))
    .action(async (policies: string[], given: Record<string, string | boolean | undefined>) => {
      await checkReport(given.report);
      const texts = given as Record<string, string | undefined>;
      const whole = (name: string, flag: string, otherwise: number, min: number, max: number): number =>
        numberWithin(texts, name, flag, { min, max, whole: true }) ?? otherwise;
      const options: EvolveOptions = {
        policies,
        slot: String(given.slot),
        plan: String(given.plan),
        slots: texts.slots,
        features: String(given.features),
        out: String(given.out),
        resume: given.resume === true,
        plots: given.plots !== false && (await hasPlots()),
        report: texts.report,
        generations: whole('generations', '--generations', 30, 1, 100_000),
        minutes: numberWithin(texts, 'minutes', '--minutes', { min: 0, max: 1e6 }) ?? Infinity,
        population: whole('population', '--population', 32, 4, 10_000),
        seed: whole('seed', '--seed', 1, 0, Number.MAX_SAFE_INTEGER),
        ...workersOption(given),
        islands: whole('islands', '--islands', 3, 1, 100),
        finalists: whole('finalists', '--finalists', 12, 1, 1000),
        wallMs:
          numberWithin(texts, 'wallMs', '--wall-ms', {
            min: 1,
            max: 86_400_000,
            whole: true,
            counts: 'ms',
          }) ?? 60_000,
        json: texts.json,
      };
      requireWritableTargets({ '--json': options.json }, { '--plan': options.plan });
      const { evolve } = await import('./run.ts');
      await interruptible((signal) => evolve(options, signal));
    });
}

/** Whether plots can be drawn; says what is missing otherwise, since a search is worth its time without them. */
async function hasPlots(): Promise<boolean> {
  const { requirePlots } = await import('../../io/printing/chart.ts');
  try {
    await requirePlots();
    return true;
  } catch (error) {
    if (!(error instanceof TierKVError)) throw error;
    process.stderr.write(`tierkv: draws no plots: ${error.message}\n`);
    return false;
  }
}
