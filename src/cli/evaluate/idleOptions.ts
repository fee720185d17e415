/**
 * Words and options of `tierkv evaluate` that would do nothing beside the others are refused before anything
 * is done: who gives them expects something else than what would happen.
 */

import type { Command } from 'commander';
import { configError } from '../../runtime/errors.ts';

const served = ['plan', 'regrets', 'cache', 'workers', 'limit'];

const compared = ['slot', 'presets', 'suite', 'seeds', 'plan', 'cache', 'workers', 'limit', 'json'];
const worlds = ['latency', 'workloads', ...compared];

/** What evaluate does in place of a page, and the options that it reads then. */
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
export function refuseIdle(policies: readonly string[], command: Command): void {
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
