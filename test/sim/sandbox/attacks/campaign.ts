/** Many random programs, one after the other: how they end, in one figure that is the same on every machine. */

import { programOf } from './programs.ts';
import { tryProgram } from './trial.ts';

export interface CampaignReport {
  readonly programs: number;
  /** How many ended how, by language and kind. */
  readonly ends: Readonly<Record<string, number>>;
  /** Of language, kind, steps, memory and decisions of every program. */
  readonly digest: string;
  readonly findings: readonly string[];
}

export interface Campaign {
  readonly seed: number;
  readonly first: number;
  readonly programs: number;
  /** Before each program. */
  onProgram?(number: number): void;
}

export async function runCampaign({ seed, first, programs, onProgram }: Campaign): Promise<CampaignReport> {
  const ends: Record<string, number> = {};
  const findings: string[] = [];
  let digest = 0xcbf29ce484222325n;
  for (let number = first; number < first + programs; number++) {
    onProgram?.(number);
    const { language, source, budget } = programOf(seed, number);
    const { kind, steps, memory, decisions, fault } = await tryProgram(language, source, budget);
    const end = `${language} ${kind}`;
    ends[end] = (ends[end] ?? 0) + 1;
    if (fault !== null) findings.push(`program ${number} of seed ${seed}, ${language}: ${fault}`);
    for (const byte of Buffer.from(`${end} ${steps} ${memory} ${decisions.join()}`)) {
      digest = BigInt.asUintN(64, (digest ^ BigInt(byte)) * 0x100000001b3n);
    }
  }
  return { programs, ends, digest: digest.toString(16).padStart(16, '0'), findings };
}
