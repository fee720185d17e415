/** `tierkv observe WORKLOAD --target URL`: a workload against a running server, and a line a request of what it measured. */

import { Command } from 'commander';
import { requireWritableTargets, writeResultJson, writeText } from '../io/files/results.ts';
import { formatCounted, formatSeconds, printable } from '../io/printing/text.ts';
import { configError } from '../runtime/errors.ts';
import type { WorkloadRequest } from '../sim/workload/request.ts';
import { inFlags, numberWithin, type OptionValues, settingsOf, textOption, workloadFlags } from './flags.ts';
import { addKnobs, jsonOption, tracePaths } from './optionRows.ts';
import { printText } from './output.ts';

/** A sender that is later than this measures itself. */
const lateUs = 50_000;

function* first(requests: Iterable<WorkloadRequest>, most: number): Generator<WorkloadRequest> {
  let count = 0;
  for (const request of requests) {
    if (count++ === most) return;
    yield request;
  }
}

async function run(file: string, options: OptionValues): Promise<void> {
  const target = String(options.target);
  const out = String(options.out);
  requireWritableTargets({ '--out': out, '--json': options.json }, { WORKLOAD: file });
  const number = (name: string, flag: string, min: number, max: number, whole: boolean): number | undefined =>
    numberWithin(options, name, flag, { min, max, whole });
  const most = number('numRequests', '--num-requests', 1, 1e6, true) ?? Number.POSITIVE_INFINITY;
  const { openWorkload, requireFormat } = await import('../sim/build/openWorkload.ts');
  const { openOptions } = await import('../sim/build/presetSettings.ts');
  const from = textOption(options, 'from');
  const opened = inFlags(workloadFlags, () =>
    openWorkload(file, {
      ...openOptions(settingsOf(options)),
      ...(from === undefined || from === 'auto' ? {} : { format: requireFormat(from) }),
    }),
  );
  if (opened.workload?.sessions !== undefined) {
    const problem = `has sessions whose rounds wait for answers, and requests are sent at their times`;
    throw configError('workload', problem, 'Set closed_loop: false, or name a recorded trace.');
  }
  const keyName = typeof options.apiKeyEnv === 'string' ? options.apiKeyEnv : undefined;
  const apiKey = keyName === undefined ? undefined : process.env[keyName];
  if (keyName !== undefined && apiKey === undefined) {
    throw configError(
      '--api-key-env',
      `names ${keyName}, which is not set`,
      'Set it, or leave the option out.',
    );
  }
  const { observe } = await import('../serve/observe.ts');
  const { startProgressBar } = await import('../io/printing/progress.ts');
  const { takenText } = await import('./workload/describe.ts');
  using bar = startProgressBar('requests');
  const { model, lines, latestUs, uncounted } = await inFlags(workloadFlags, () =>
    observe(first(opened.requests(), most), {
      target,
      vocabulary: number('vocabulary', '--vocabulary', 2, 2 ** 24, true) ?? 32_000,
      speedup: number('speedup', '--speedup', 1e-6, 1e6, false) ?? 1,
      timeoutMs:
        1000 * (numberWithin(options, 'timeout', '--timeout', { min: 0.001, max: 1e6, counts: 's' }) ?? 600),
      warmUp: number('warmUp', '--warm-up', 0, 10_000, true) ?? 0,
      ...(typeof options.model === 'string' ? { model: options.model } : {}),
      ...(apiKey === undefined ? {} : { apiKey }),
      ...(typeof options.tokenizer === 'string' ? { tokenizer: options.tokenizer } : {}),
      progress: (ended, begun) =>
        bar.update({ share: ended / Math.max(begun, 1), done: ended, note: `${begun} sent` }),
    }),
  );
  writeText(out, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  const taken = takenText(file, opened);
  if (taken !== '') bar.say(taken);
  const whole = lines.filter(({ outcome }) => outcome === 'completed');
  const bad = lines.length - whole.length;
  if (bad > 0) {
    const why = lines.find(({ outcome }) => outcome === 'failed')?.error ?? '';
    bar.say(
      `warning: ${formatCounted(bad, 'requests')} failed, the first with: ${printable(why.slice(0, 200))}`,
    );
  }
  if (uncounted > 0) {
    bar.say(
      `warning: how many tokens ${formatCounted(uncounted, 'answers')} had is not known, since the server did not count them: their ` +
        'lines say -1, and a fit leaves them out. Give --tokenizer to count them',
    );
  }
  const odd = lines.flatMap(({ unknown_end }) => unknown_end ?? []);
  if (odd.length > 0) {
    const reasons = printable([...new Set(odd)].slice(0, 5).join(', '));
    bar.say(
      `warning: ${formatCounted(odd.length, 'answers')} ended for a reason that is not known (${reasons}): see whether they are whole`,
    );
  }
  if (latestUs > lateUs) {
    bar.say(
      `warning: requests were sent up to ${formatSeconds(latestUs / 1e6)} late: this machine is too busy for the rate`,
    );
  }
  const mean = (of: (line: (typeof whole)[number]) => number): string =>
    (whole.reduce((sum, line) => sum + of(line), 0) / whole.length / 1000).toFixed(1);
  if (typeof options.json === 'string') {
    const all = { model, target, requests: lines.length, completed: whole.length, latestUs };
    const means = {
      ttftMeanMs: Number(mean(({ ttft_us }) => ttft_us)),
      e2eMeanMs: Number(mean(({ e2e_us }) => e2e_us)),
    };
    writeResultJson(options.json, 'observe', { ...all, ...means });
  }
  const ttft = mean(({ ttft_us }) => ttft_us);
  const e2e = mean(({ e2e_us }) => e2e_us);
  printText(
    `${printable(
      `${formatCounted(whole.length, 'requests')} of ${model} at ${target}: TTFT ${ttft} ms, E2E ${e2e} ms on average`,
    )}\nwrote ${printable(out)}\n`,
  );
}

export function observeCommand(): Command {
  return addKnobs(
    new Command('observe')
      .description('Drive a server of the OpenAI API with a workload, and record when its tokens come.')
      .argument(
        '<workload>',
        'specification or recorded trace; lengths, times and shared prefixes are as there',
      ),
    tracePaths,
  )
    .requiredOption('--target <url>', 'the server, as http://localhost:8000')
    .requiredOption('--out <file.jsonl>', 'output file, a line per request')
    .option('--model <name>', 'model to ask for (default: the first that the server lists)')
    .option('--vocabulary <n>', 'token ids are sent below this (default: 32000)')
    .option('--num-requests <n>', 'maximum number of requests')
    .option('--warm-up <n>', 'requests that are sent one by one before, and not recorded')
    .option('--speedup <x>', 'factor by which arrivals are faster (default: 1)')
    .option('--timeout <time>', 'request timeout, as 30s, or in seconds (default: 600)')
    .option('--api-key-env <name>', 'environment variable that holds the key of the API')
    .option('--tokenizer <file>', 'tokenizer.json of the model, for servers that do not count their tokens')
    .option('--from <format>', 'format of the workload, found out by default')
    .option('--seed <n>', 'random key of a specification')
    .option('--rate <n>', 'arrival rate in requests per second, for files without times')
    .addOption(jsonOption())
    .action(run);
}
