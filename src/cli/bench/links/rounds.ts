/**
 * Measures contestants against each other: all of them in each round, so that whatever else the machine does meets all
 * alike, and each round begins with another one. What counts is the median over the rounds.
 */

export interface Contestant {
  readonly name: string;
  readonly bytes: number;
  /** What must be done before and is not measured. */
  prepare?(): void | Promise<void>;
  run(): Promise<void>;
}

export interface Speed {
  readonly gbps: number;
  /** Cores busy in this process while it ran. */
  readonly cores: number;
}

export async function measureRounds(
  contestants: readonly Contestant[],
  rounds: number,
  afterRound: () => Promise<void>,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, Speed>> {
  const samples = new Map(
    contestants.map(({ name }) => [name, { gbps: [] as number[], cores: [] as number[] }]),
  );
  for (let round = -1; round < rounds; round++) {
    for (let i = 0; i < contestants.length; i++) {
      signal.throwIfAborted();
      const one = contestants[(i + Math.max(0, round)) % contestants.length]!;
      await one.prepare?.();
      const speed = await timed(one);
      if (round < 0) continue; // the first round warms up
      samples.get(one.name)!.gbps.push(speed.gbps);
      samples.get(one.name)!.cores.push(speed.cores);
    }
    if (round >= 0) await afterRound();
  }
  return new Map(
    [...samples].map(([name, { gbps, cores }]) => [name, { gbps: median(gbps), cores: median(cores) }]),
  );
}

async function timed({ bytes, run }: Contestant): Promise<Speed> {
  const cpuBefore = process.cpuUsage();
  const started = performance.now();
  await run();
  const elapsedMs = performance.now() - started;
  const { user, system } = process.cpuUsage(cpuBefore);
  return { gbps: bytes / elapsedMs / 1e6, cores: (user + system) / 1000 / elapsedMs };
}

export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** The smallest value that a share `q` of the values does not exceed; 0 of no values. */
export function quantile(values: readonly number[], q: number): number {
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.max(0, Math.ceil(q * sorted.length) - 1)] ?? 0;
}
