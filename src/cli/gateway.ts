/**
 * `tierkv gateway`: a reverse proxy before OpenAI-compatible servers, its log decided again, and its shadows compared.
 * This file turns command lines into calls and prints what came of them.
 */

import { Command } from 'commander';
import { requireWritableTargets, writeResultJson } from '../io/files/results.ts';
import { formatCount, printable, renderTable } from '../io/printing/text.ts';
import { configError } from '../runtime/errors.ts';
import type { GatewayConfig, GatewayLimits } from '../serve/gateway/config.ts';
import type { ReplayResult } from '../serve/gateway/decisionLog.ts';
import type { ShadowReport } from '../serve/gateway/shadows.ts';
import type { GatewayCounts } from '../serve/gateway/status.ts';
import type { BackendRole } from '../serve/gateway/twoLegs.ts';
import { notes } from './help.ts';
import { jsonOption } from './optionRows.ts';
import { printText } from './output.ts';
import { interruptible } from './process.ts';

interface GatewayOptions {
  readonly backend: readonly string[];
  readonly role: readonly string[];
  readonly events: readonly string[];
  readonly eventsReplay: readonly string[];
  readonly metrics: readonly string[];
  readonly metricsKey?: string;
  readonly policy?: string;
  readonly slot: string;
  readonly shadow: readonly string[];
  readonly control?: string;
  readonly host: string;
  readonly port: string;
  readonly blockTokens: string;
  readonly maxSequences: string;
  readonly backendBlocks: string;
  readonly tokenizer?: string;
  readonly keySecret?: string;
  readonly tenants?: string;
  readonly tenantsApart?: boolean;
  readonly operatorHost: string;
  readonly operatorPort?: string;
  readonly forwardHeader: readonly string[];
  readonly adminKey?: string;
  readonly backendKey?: string;
  readonly sendPriority: boolean;
  readonly diagnostics: boolean;
  readonly pollMs: string;
  readonly seed: string;
  readonly limit: readonly string[];
  readonly log?: string;
  readonly trace?: string;
  readonly partBytes?: string;
  readonly keepParts: string;
}

const helpEnd = `
A backend is any OpenAI-compatible server: --backend http://127.0.0.1:8001, or with a name a=http://127.0.0.1:8001.
Its /metrics are read under the names of vLLM. Stages that the policy leaves out are those of --control, the section
"control" of a deployment file of tierkv simulate; without it all requests are admitted and go round robin.

  GET  /health                         200 while a backend can take requests

At the operators' port, which answers this machine alone, or with --admin-key all that show the key:

  GET  /metrics                        figures for Prometheus
  GET  /gateway/status                 backends with the age of each signal
  POST /gateway/backends/ID/drain      nothing new goes there
  POST /gateway/backends/ID/resume     takes it back (both with --admin-key)

Limits, each as NAME=NUMBER: bodyBytes, headerBytes, requests, uploadMs, retries, graceMs, headMs, idleMs, totalMs,
bytes, clientMs, diagnosticsBytes.
`;

const repeated = (value: string, before: readonly string[]): readonly string[] => [...before, value];

/** How all requests of a run ended: what did not happen is left out, but for the usual ends. */
function countsText(counts: GatewayCounts): string {
  const { requests, completed, rejected, failed, retries } = counts;
  const others = {
    invalid: counts.invalid,
    'without a backend': counts.unroutable,
    'answered with an error of a backend': counts.backendErrors,
    'left by their clients': counts.clientsLeft,
  };
  const more = Object.entries(others).flatMap(([what, n]) => (n === 0 ? [] : [`, ${n} ${what}`]));
  return `${requests} requests: ${completed} completed, ${rejected} rejected, ${failed} failed${more.join('')}, ${retries} retries`;
}

export function gatewayCommand(): Command {
  const command = new Command('gateway')
    .description('Route requests to OpenAI-compatible servers by the policies of the simulator.')
    .option('--backend <[id=]url>', 'a server; repeatable', repeated, [])
    .option(
      '--role <id=role>',
      'what a server computes: prefill, decode or monolithic (default); repeatable',
      repeated,
      [],
    )
    .option(
      '--events <id=endpoint>',
      'where a server publishes KV events, as a=tcp://host:5557; repeatable',
      repeated,
      [],
    )
    .option('--events-replay <id=endpoint>', 'where it sends missed ones again; repeatable', repeated, [])
    .option(
      '--metrics <id=url>',
      "where a server's metrics are (default: its /metrics); repeatable",
      repeated,
      [],
    )
    .option('--metrics-key <file>', 'key that is shown there (default: the key of --backend-key)')
    .option('--policy <file>', 'bundle (.json), program (.star, .wasm, .js) or name of a preset')
    .option('--slot <slot>', 'what a program decides', 'routing')
    .option(
      '--shadow <[name=]file>',
      'shadow policy, whose decisions have no effect; repeatable',
      repeated,
      [],
    )
    .option('--control <file>', 'deployment file whose section "control" is taken')
    .option('--host <host>', 'address to listen at', '127.0.0.1')
    .option('--port <port>', 'port to listen at; 0: any that is free', '8080')
    .option('--block-tokens <n>', 'tokens per KV block of the servers', '16')
    .option('--max-sequences <n>', 'maximum requests per batch of a server', '256')
    .option(
      '--backend-blocks <n,...>',
      'blocks of each tier of a server that does not say, HBM first',
      '65536',
    )
    .option(
      '--tokenizer <file>',
      'tokenizer.json among the files of the model (default: prompts are cut by text)',
    )
    .option(
      '--key-secret <file>',
      'secret of the block keys in hexadecimal digits (default: drawn at the start)',
    )
    .option('--tenants <file>', 'API keys, a line key=tenant each (default: clients are one tenant)')
    .option(
      '--tenants-apart',
      'servers keep tenants apart, so prompts of two share no block (default: as KV events tell)',
    )
    .option('--operator-host <host>', "address of the operators' port", '127.0.0.1')
    .option('--operator-port <port>', 'port of /metrics and /gateway/... (default: 1000 above --port)')
    .option(
      '--admin-key <file>',
      "key that is asked for at the operators' port (default: none, for this machine alone)",
    )
    .option(
      '--forward-header <name>',
      'a header of clients that goes on to servers too; repeatable',
      repeated,
      [],
    )
    .option('--backend-key <file>', "key that servers are shown in place of the clients'")
    .option('--send-priority', 'tell servers the rank of each request, as vLLM takes it', false)
    .option('--diagnostics', 'remember prints of prompts, and tell why one was not found in a cache', false)
    .option('--poll-ms <n>', 'milliseconds between two polls of a server', '500')
    .option('--seed <n>', 'seed of the policies', '0')
    .option('--limit <name=number>', 'a limit; repeatable', repeated, [])
    .option('--log <file>', 'write all inputs and decisions, for tierkv gateway replay')
    .option('--trace <file>', 'write the requests as a workload, for tierkv simulate')
    .option('--part-bytes <n>', 'size after which log and trace go on in a new file (default: 1 GiB)')
    .option('--keep-parts <n>', 'finished files of each that are kept; 0: all', '0')
    .addHelpText('after', notes(helpEnd))
    .action(async (options: GatewayOptions) => {
      const { Gateway } = await import('../serve/gateway/gateway.ts');
      const config = await configOf(options);
      await interruptible(async (signal) => {
        await using gateway = await Gateway.open(config);
        for (const note of gateway.notes) printText(`${note}\n`);
        const up = gateway.pool.backends.filter(({ isUp }) => isUp).length;
        printText(`${gateway.cutting}\n`);
        printText(
          `${up} of ${gateway.pool.backends.length} backends are up; decisions by ${gateway.policy}\n`,
        );
        const turn = (): void => gateway.turnFiles();
        process.on('SIGHUP', turn);
        using _ = { [Symbol.dispose]: () => void process.off('SIGHUP', turn) };
        printText(`operators' pages at ${gateway.operatorUrl}\n`);
        printText(`listening at ${gateway.url}\n`);
        await new Promise<void>((resolve) =>
          signal.addEventListener('abort', () => resolve(), { once: true }),
        );
        printText('stopping: requests under way are waited for\n');
        await gateway.close();
        printText(`${countsText(gateway.counts)}\n`);
        const { refused } = gateway.counts;
        if (refused.size > 0) {
          const whys = [...refused].map(([why, times]) => `${times} ${why}`);
          printText(`refused before any decision: ${whys.join(', ')}\n`);
        }
        for (const loss of gateway.losses) printText(`${loss}\n`);
      });
    });
  command
    .command('replay')
    .description('Decide a recorded run again, and compare the decisions line for line.')
    .argument('<log>', 'as --log wrote it')
    .addOption(jsonOption())
    .addHelpText(
      'after',
      notes(
        'Exit code: 0 where all decisions are the same, 1 where any differs.\n\nLast line: differences N',
      ),
    )
    .action(async (log: string, { json }: { json?: string }) => {
      requireWritableTargets({ '--json': json }, { LOG: log });
      const { decideAgain } = await import('../serve/gateway/decisionLog.ts');
      const result = await decideAgain(log);
      if (json !== undefined) writeResultJson(json, 'gateway replay', result);
      printText(replayText(result));
      if (result.differences.length > 0) process.exitCode = 1;
    });
  command
    .command('shadows')
    .description('Compare what shadows would have decided, and by simulation what they would have given.')
    .argument('<log>', 'as --log wrote it')
    .option('--workload <file>', 'trace of the same run, as --trace wrote it, to be simulated')
    .option('--deployment <file>', 'deployment file with the servers, for the simulation')
    .addOption(jsonOption())
    .action(async (log: string, options: { workload?: string; deployment?: string; json?: string }) => {
      const { workload, deployment, json } = options;
      requireWritableTargets(
        { '--json': json },
        { LOG: log, '--workload': workload, '--deployment': deployment },
      );
      if ((workload === undefined) !== (deployment === undefined)) {
        const [given, missing] =
          workload === undefined ? ['--deployment', '--workload'] : ['--workload', '--deployment'];
        throw configError(missing, `is missing beside ${given}`, 'Give both, or neither.');
      }
      const { compareShadows } = await import('../serve/gateway/shadows.ts');
      const trial =
        workload === undefined || deployment === undefined ? undefined : { trace: workload, deployment };
      const report = await compareShadows(log, trial);
      if (json !== undefined) writeResultJson(json, 'gateway shadows', report);
      printText(shadowsText(report));
    });
  return command;
}

async function configOf(options: GatewayOptions): Promise<GatewayConfig> {
  const { readControlFile, readKeySecret, readSecret, readTenants } = await import(
    '../serve/gateway/files.ts'
  );
  const { openPolicy } = await import('../policy/evaluate/openPolicy.ts');
  const backendKey =
    options.backendKey === undefined ? undefined : readSecret(options.backendKey, '--backend-key');
  const control = options.control === undefined ? undefined : readControlFile(options.control);
  const limits = Object.fromEntries(
    options.limit.map((text) => {
      const [name, value, ...more] = text.split('=');
      if (!/^\d+$/.test(value ?? '') || more.length > 0) {
        throw configError('--limit', `is "${text}"`, 'Write NAME=NUMBER.');
      }
      return [name, Number(value)];
    }),
  );
  const backends = options.backend.map((text) => {
    const [, id, url = text] = /^(?:([^=/:]+)=)?(.+)$/.exec(text) ?? [];
    return { url, id: id ?? (URL.canParse(url) ? new URL(url).host : url) };
  });
  const ids = backends.map(({ id }) => id);
  const roles = endpointsOf('--role', options.role, ids);
  const events = endpointsOf('--events', options.events, ids);
  const metrics = endpointsOf('--metrics', options.metrics, ids);
  const metricsKey =
    options.metricsKey === undefined ? undefined : readSecret(options.metricsKey, '--metrics-key');
  const replays = endpointsOf('--events-replay', options.eventsReplay, [...events.keys()]);
  return {
    backends: backends.map(({ url, id }) => {
      const [from, again] = [events.get(id), replays.get(id)];
      return {
        url,
        id,
        ...(roles.has(id) ? { role: roles.get(id) as BackendRole } : {}),
        ...(backendKey === undefined ? {} : { apiKey: backendKey }),
        ...(metrics.has(id) ? { metrics: metrics.get(id) as string } : {}),
        ...(metricsKey === undefined ? {} : { metricsKey }),
        ...(from === undefined ? {} : { events: from }),
        ...(again === undefined ? {} : { eventsReplay: again }),
      };
    }),
    ...(options.policy === undefined ? {} : { policy: openPolicy(options.policy, options.slot) }),
    shadows: options.shadow.map((text) => {
      const [, name = text, file = text] = /^([^=]+)=(.+)$/.exec(text) ?? [];
      return { name, bundle: openPolicy(file, options.slot) };
    }),
    ...(control === undefined ? {} : { control: control.control }),
    ...(control?.queue === undefined ? {} : { queue: control.queue }),
    host: options.host,
    port: wholeNumber('--port', options.port),
    operatorHost: options.operatorHost,
    ...(options.operatorPort === undefined
      ? {}
      : { operatorPort: wholeNumber('--operator-port', options.operatorPort) }),
    forwardHeaders: options.forwardHeader,
    blockTokens: wholeNumber('--block-tokens', options.blockTokens),
    maxSequences: wholeNumber('--max-sequences', options.maxSequences),
    backendBlocks: options.backendBlocks.split(',').map((text) => wholeNumber('--backend-blocks', text)),
    ...(options.tokenizer === undefined ? {} : { tokenizer: options.tokenizer }),
    ...(options.keySecret === undefined
      ? {}
      : { keySecret: readKeySecret(options.keySecret, '--key-secret') }),
    ...(options.tenants === undefined ? {} : { tenants: readTenants(options.tenants) }),
    ...(options.tenantsApart === true ? { tenantsApart: true } : {}),
    ...(options.adminKey === undefined ? {} : { adminKey: readSecret(options.adminKey, '--admin-key') }),
    sendPriority: options.sendPriority,
    diagnostics: options.diagnostics,
    pollMs: wholeNumber('--poll-ms', options.pollMs),
    seed: BigInt(wholeNumber('--seed', options.seed)),
    limits: limits as Partial<GatewayLimits>,
    ...(options.log === undefined ? {} : { log: options.log }),
    ...(options.trace === undefined ? {} : { trace: options.trace }),
    ...(options.partBytes === undefined ? {} : { partBytes: wholeNumber('--part-bytes', options.partBytes) }),
    keepParts: wholeNumber('--keep-parts', options.keepParts),
    noted: (note) => printText(`${note}\n`),
  };
}

/** Values of an option that names servers, by server. */
function endpointsOf(option: string, texts: readonly string[], ids: readonly string[]): Map<string, string> {
  const endpoints = new Map<string, string>();
  for (const text of texts) {
    const [, id = '', endpoint = ''] = /^([^=]+)=(.+)$/.exec(text) ?? [];
    if (endpoint === '' || endpoints.has(id)) {
      const examples: Record<string, string> = {
        '--role': 'prefill',
        '--metrics': 'http://host:port/metrics',
      };
      const example = examples[option] ?? 'tcp://host:port';
      throw configError(option, `is "${text}"`, `Write ID=${example}, once for each server.`);
    }
    if (!ids.includes(id)) {
      throw configError(
        option,
        `names ${id}, which is not among ${ids.join(', ') || 'the servers'}`,
        'Name one of them.',
      );
    }
    endpoints.set(id, endpoint);
  }
  return endpoints;
}

function wholeNumber(option: string, text: string): number {
  if (/^\d{1,15}$/.test(text.trim())) return Number(text);
  throw configError(option, `is "${text}"`, 'Give a whole number.');
}

function replayText({
  inputs,
  decisions,
  routes,
  differing,
  differences,
  stoppedAt,
  isCut,
  header,
}: ReplayResult): string {
  const lines = [
    `log of ${printable(header.began)}: ${formatCount(inputs)} inputs, ${formatCount(decisions)} decisions, ${formatCount(routes)} of them routes`,
    ...(isCut ? ['the last line is a part of one: the gateway was killed'] : []),
  ];
  if (differences.length === 0) lines.push('all decisions are the same, line for line');
  for (const { file, line, written, again } of differences) {
    lines.push(`${printable(file)}:${line} differs`, `  written  ${written}`, `  again    ${again}`);
  }
  if (differing > differences.length) lines.push(`and ${differing - differences.length} more`);
  if (stoppedAt !== -1)
    lines.push(`stopped at line ${stoppedAt}: what follows fits the other decisions no more`);
  lines.push(`differences ${differing}`);
  return `${lines.join('\n')}\n`;
}

function shadowsText({ requests, policies }: ShadowReport): string {
  const share = (part: number, whole: number): string =>
    whole === 0 ? '-' : `${((100 * part) / whole).toFixed(1)} %`;
  const figure = (value: number | undefined, digits: number): string =>
    value === undefined ? '-' : value.toFixed(digits);
  const rows = policies.map(({ name, tally, metrics, prefixHitRate }) => [
    name,
    tally === undefined ? 'decided' : share(tally.otherTargets, tally.routes),
    tally === undefined ? 'decided' : share(tally.otherVerdicts, tally.admissions),
    figure(prefixHitRate, 4),
    figure(metrics?.ttft_mean_ms, 1),
    figure(metrics?.ttft_p99_ms, 1),
    figure(metrics?.e2e_mean_ms, 1),
  ]);
  const numbers = [
    'other backend',
    'other verdict',
    'prefix hit rate',
    'TTFT mean ms',
    'TTFT p99 ms',
    'E2E mean ms',
  ];
  const head = [{ title: 'policy' }, ...numbers.map((title) => ({ title, align: 'right' as const }))];
  return `${formatCount(requests)} requests; figures are of a simulation of them\n${renderTable(head, rows)}\n`;
}
