/**
 * The load at any length: `npm run campaign -- server --seconds 600 --seed 1`. The clients are divided over three
 * servers, whose models have tokenizers of three kinds, or the ones that `--tokenizers` names, separated by
 * commas. It fails for a wrong answer, for blocks that are held at the end, and for a heap that grows: by
 * more than 4 MiB an hour, and surely. So that growth is what the server keeps, and nothing that only fills:
 *
 * - The first fifth of the time, in which caches fill, is left out.
 * - What the eviction policy keeps of blocks that were let go is full before (filling.ts).
 * - Each function is compiled once, when it first runs, and not again as soon as it has run often: the
 *   code of V8's optimizing compilers grows for as long as functions come to be worth it.
 *
 * It runs in a process of its own (../soak/ownProcess.ts).
 */

import { parseArgs } from 'node:util';
import { removeStateDirectories } from '../examples/server/liveServer.ts';
import { tokenizerKinds } from '../examples/server/tokenizerKinds.ts';
import { leaks, theilSen } from '../soak/judging/slope.ts';
import { inOwnProcess } from '../soak/ownProcess.ts';
import { type LoadOptions, serverLoad } from './campaign.ts';

const mib = 2 ** 20;
const COMPILED_ONCE = ['--always-sparkplug', '--no-maglev', '--no-turbofan'];
process.exitCode = (await inOwnProcess(import.meta.filename, COMPILED_ONCE)) ?? (await main());

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      seconds: { type: 'string', default: '600' },
      seed: { type: 'string', default: '1' },
      clients: { type: 'string', default: '24' },
      tokenizers: { type: 'string', default: tokenizerKinds.join() },
    },
  });
  const kinds = values.tokenizers.split(',').map((name) => {
    const kind = tokenizerKinds.find((each) => each === name);
    if (kind === undefined)
      throw new RangeError(`--tokenizers has ${name}, not one of ${tokenizerKinds.join(', ')}`);
    return kind;
  });
  const seconds = Number(values.seconds);
  if (!(seconds >= 20)) throw new RangeError('--seconds must be 20 or more');
  const seed = Number(values.seed);
  const clients = Math.ceil(Number(values.clients) / kinds.length);

  let waiting = kinds.length;
  let begin = (): void => {};
  const all = new Promise<void>((resolve) => {
    begin = resolve;
  });
  const ready = (): Promise<void> => {
    if (--waiting === 0) begin();
    return all;
  };
  // Memory is the process's, so that one of them looks at it for all.
  const sampling: Partial<LoadOptions> = {
    sampleEveryMs: (seconds * 1000) / 60,
    onSample: ({ seconds: now, heapBytes, residentBytes }, done) => {
      const [heap, resident] = [heapBytes, residentBytes].map((bytes) => (bytes / mib).toFixed(1));
      console.log(`${now.toFixed(0)} s: ${JSON.stringify(done)}, heap ${heap} MiB, resident ${resident} MiB`);
    },
  };
  const reports = await Promise.all(
    kinds.map((tokenizer, i) =>
      serverLoad({
        seed: seed + i,
        clients,
        tokenizer,
        seconds,
        fills: true,
        ready,
        ...(i === 0 ? sampling : {}),
      }),
    ),
  );
  removeStateDirectories();

  const failures: string[] = [];
  reports.forEach(({ counts, problems, reloads, preemptions }, i) => {
    const { [i]: kind } = kinds;
    failures.push(...problems.map((problem) => `${kind}: ${problem}`));
    if (reloads === 0) failures.push(`${kind}: nothing was reloaded`);
    if (preemptions === 0) failures.push(`${kind}: no request gave way`);
    console.log(`${kind}: ${JSON.stringify(counts)}, ${reloads} reloads, ${preemptions} preemptions`);
  });
  const settled = reports[0].samples.filter((sample) => sample.seconds > seconds / 5);
  const hours = settled.map((sample) => sample.seconds / 3600);
  const slope = (bytes: (sample: (typeof settled)[number]) => number) => theilSen(hours, settled.map(bytes));
  const heap = slope(({ heapBytes }) => heapBytes / mib);
  const resident = slope(({ residentBytes }) => residentBytes / mib);
  if (leaks(heap, 4)) failures.push(`the heap grows by ${heap.perUnit.toFixed(1)} MiB an hour`);
  for (const failure of failures) console.log(`FAILED: ${failure}`);
  console.log(
    `seed ${seed}; MiB an hour: ` +
      `heap ${heap.perUnit.toFixed(1)} (${heap.low.toFixed(1)} to ${heap.high.toFixed(1)}), ` +
      `resident ${resident.perUnit.toFixed(1)} (${resident.low.toFixed(1)} to ${resident.high.toFixed(1)})`,
  );
  return failures.length > 0 ? 1 : 0;
}
