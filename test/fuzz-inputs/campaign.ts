/**
 * A campaign: inputs made from a seed, each given to one command. The same seed gives the same inputs in the
 * same order.
 */

import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Random } from '../fuzz/random.ts';
import { goodStore, type StoreFiles, storeCommands, writeDamagedStore } from './diskDirectories.ts';
import { inputKinds } from './goodInputs.ts';
import { runCommand, wrongWith } from './judge.ts';
import { damage } from './mutate.ts';

/** Files, and directories of disk tiers. */
export const kindsOfInput: number = inputKinds.length + 1;

export interface Finding {
  readonly input: number;
  readonly kind: string;
  readonly args: readonly string[];
  readonly problem: string;
  /** Where the input is kept, if asked for. */
  readonly kept?: string;
}

export interface CampaignOptions {
  readonly seed: number;
  /** Number of the first input. */
  readonly first: number;
  /** Called before each input with how many are done; false ends the campaign. */
  readonly goOn: (done: number) => boolean;
  readonly onFinding: (finding: Finding) => void;
  /** Seconds after which a command counts as hanging. */
  readonly limitS: number;
  /** Where inputs of findings are kept. */
  readonly keepIn?: string;
}

export interface CampaignReport {
  readonly inputs: number;
  /** Commands that ended with results, the input being right after all. */
  readonly accepted: number;
  readonly largestMib: number;
  readonly slowestS: number;
}

export async function fuzzInputs(options: CampaignOptions): Promise<CampaignReport> {
  const folder = fs.mkdtempSync(join(tmpdir(), 'tierkv-fuzz-'));
  let [inputs, accepted, largestMib, slowestS] = [0, 0, 0, 0];
  try {
    const store = await goodStore(folder);
    for (; options.goOn(inputs); inputs++) {
      const number = options.first + inputs;
      // each input has random numbers of its own, so that it can be made again alone
      const random = new Random(options.seed * 1_000_003 + number);
      const { kind, input, args } = makeInput(folder, number, random, store);
      const ended = await runCommand(args, folder, options.limitS);
      largestMib = Math.max(largestMib, ended.peakMib);
      slowestS = Math.max(slowestS, ended.seconds);
      if (ended.status === 0) accepted++;
      const left = fs.readdirSync(folder).filter((name) => name.endsWith('.part'));
      const problem = wrongWith(ended) ?? (left.length > 0 ? `it left ${left[0]} behind` : undefined);
      if (problem !== undefined) {
        const kept = options.keepIn === undefined ? {} : { kept: keep(input, options.keepIn) };
        options.onFinding({ input: number, kind, args, problem, ...kept });
      }
      for (const name of fs.readdirSync(folder)) fs.rmSync(join(folder, name), { recursive: true });
    }
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
  return { inputs, accepted, largestMib, slowestS };
}

/** Files of all kinds and directories of disk tiers by turns. */
function makeInput(
  folder: string,
  number: number,
  random: Random,
  store: StoreFiles,
): { readonly kind: string; readonly input: string; readonly args: readonly string[] } {
  const out = join(folder, `${number}-out`);
  const kind = inputKinds[number % kindsOfInput];
  if (kind === undefined) {
    const input = join(folder, `${number}-store`);
    writeDamagedStore(input, store, random);
    return { kind: 'disk directory', input, args: random.pick(storeCommands)(input, out) };
  }
  const { bytes, suffix } = damage(kind.good, random, kind.mend);
  const input = join(folder, `${number}-${kind.file}${suffix}`);
  fs.writeFileSync(input, bytes);
  return { kind: kind.name, input, args: random.pick(kind.commands)(input, out) };
}

function keep(input: string, folder: string): string {
  fs.mkdirSync(folder, { recursive: true });
  const kept = join(folder, input.slice(input.lastIndexOf('/') + 1));
  fs.cpSync(input, kept, { recursive: true });
  return kept;
}
