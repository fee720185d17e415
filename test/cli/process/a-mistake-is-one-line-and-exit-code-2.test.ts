import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, openSync } from 'node:fs';
import { join } from 'node:path';
import { CommanderError } from 'commander';
import { describe, expect, it } from 'vitest';
import { endingOf, Interrupted } from '../../../src/cli/process.ts';
import { TierKVError } from '../../../src/runtime/errors.ts';
import { main } from '../../command.ts';
import { endOf } from '../printed.ts';

const sources = join(import.meta.dirname, '..', '..', '..', 'src', 'cli', 'main.ts');
const tierkv = (args: string[]) =>
  spawnSync(process.execPath, [main, ...args], { encoding: 'utf8', timeout: 120_000 });

describe('the tierkv binary', () => {
  const mistakes: readonly (readonly [args: string[], says: RegExp])[] = [
    [[], /^tierkv: no command\. See tierkv --help\.$/],
    [['nonsense'], /^tierkv: unknown command 'nonsense'\. See tierkv --help\.$/],
    [['replay'], /^tierkv: missing required argument 'trace'\. See tierkv replay --help\.$/],
    [
      ['workload', 'generate', '--bad'],
      /^tierkv: unknown option '--bad'\. See tierkv workload generate --help\.$/,
    ],
    [['latency', 'fit'], /--out <file>' not specified\. See tierkv latency fit --help\.$/],
    [['disk', 'stat'], /missing required argument 'dir'\. See tierkv disk stat --help\.$/],
    [['workload', 'nonsense'], /^tierkv: unknown command 'nonsense'.* See tierkv workload --help\.$/],
    [['workload'], /^tierkv: name one of the commands\. See tierkv workload --help\.$/],
    [['replay', 'x', '--hbn', '5'], /^tierkv: unknown option .* \(Did you mean --hbm\?\)/],
    [['replay', 'x', '--hbm', '-5'], /^tierkv: --hbm is -5, .* \[TKV_CONFIG\]$/],
    [['evolve', '--out', '/proc/x'], /^tierkv: --out \/proc\/x cannot be made: ENOENT/],
    [
      ['evaluate', 'routing/lor', '--cache', '/dev/null/x'],
      /^tierkv: --cache \/dev\/null\/x cannot be made: ENO/,
    ],
    [
      ['evaluate', '--presets', '--suite', 'hidden'],
      /^tierkv: --suite does nothing where --presets lists the presets\. Name a policy, or leave it out\. \[TKV_CONFIG\]$/,
    ],
    [
      ['evaluate', 'baseline', '--trace-level', 'full'],
      /^tierkv: --trace-level is given without --trace\. Add --trace, or leave it out\. \[TKV_CONFIG\]$/,
    ],
    [['evaluate', 'baseline', '--http', '0'], /^tierkv: --http is given without --serve\. Add --serve/],
    [['evaluate', '--serve', '--host', 'localhost'], /^tierkv: --host is given without --http\./],
    [['evaluate', 'baseline', '--schema'], /^tierkv: --schema is given without describe\./],
    [
      ['evaluate', 'describe', 'extra'],
      /^tierkv: policy is "extra" beside describe, which takes none\. Leave it out\. \[TKV_CONFIG\]$/,
    ],
    [['evaluate', 'describe', '--trace', 'x'], /^tierkv: --trace does nothing beside describe\./],
    [['evaluate', '--serve', 'baseline'], /^tierkv: policy is "baseline" beside --serve, which takes none/],
    [['evaluate', '--serve', '--case', 'x'], /^tierkv: --case does nothing beside --serve\. Leave one of/],
    [
      ['evaluate', 'baseline', '--latency', 'all', '--trace', 'x'],
      /^tierkv: --trace does nothing beside --latency\. Leave one of them out\. \[TKV_CONFIG\]$/,
    ],
    [
      ['evaluate', 'baseline', '--workloads', 'perturbed', '--regrets', '2'],
      /^tierkv: --regrets does nothing beside --workloads\. /,
    ],
    [
      ['evaluate', 'baseline', '--skydiscover', '--serve'],
      /^tierkv: --serve does nothing beside --skydiscover\./,
    ],
    [
      ['replay', 'x', '--driver', 'modeled', '--link-latency-us', '1e23'],
      /^tierkv: --link-latency-us is 1e\+23/,
    ],
    [
      ['replay', 'x', '--driver', 'modeled', '--link-gbps', '1e23'],
      /^tierkv: --link-gbps is 1e\+23\. Set it to a number from 1e-9 to 1000000\. \[TKV_CONFIG\]$/,
    ],
    [['replay', 'x', '--driver', 'modeled', '--link-gbps', '1e-300'], /^tierkv: --link-gbps is 1e-300\./],
    [
      ['workload', 'describe', '--horizon', '1e23'],
      /^tierkv: --horizon is 1e\+23\. Set it to an integer from 1 to 9223372036854776000\. \[TKV_CONFIG\]$/,
    ],
    [
      ['workload', 'generate', '--horizon', '0.5'],
      /^tierkv: --horizon is 0\.5\. Set it to an integer from 1/,
    ],
    [['simulate', '--model', 'qwen3-14b', '--horizon', '1e23'], /^tierkv: --horizon is 1e\+23\./],
    [['simulate', '--model', 'qwen3-14b', '--timeout', '1e23'], /^tierkv: --timeout is 1e\+23\./],
    [['replay', ''], /^tierkv: trace is empty\. Name one/],
    [
      ['evaluate', 'xyzzyx'],
      /^tierkv: preset is not known \("xyzzyx"\)\. A preset is SLOT\/NAME, as routing\/lor; slots are admission, [^.]*\. tierkv evaluate --presets lists all/,
    ],
    [['evaluate', 'loor'], /^tierkv: preset is not known \("loor"\)\. Did you mean routing\/lor\? tierkv/],
    [['evaluate', 'rooting/lor'], /Did you mean routing\/lor\?/],
    [
      ['evaluate', 'routing/zzzz'],
      /Known for routing: round-robin, [^/]*\. tierkv evaluate --presets lists all/,
    ],
    [['disk', 'stat', ' '], /^tierkv: dir is empty\. Name one\. \[TKV_CONFIG\]$/],
    [['workload', 'generate', '--output', ''], /^tierkv: --output is empty\. Give it a value/],
    [['sweep', '--grid', 'tp=1', '--', '--model', ''], /^tierkv: --model is empty\./],
    [
      ['simulate', '--model', 'qwen3-14b', '--trace-output', '/no/such/dir/x'],
      /^tierkv: --trace-output \/no\/such\/dir\/x\.yaml cannot be written: the folder \/no\/such\/dir does not exist\. Make it \(mkdir -p \/no\/such\/dir\)/,
    ],
    [
      ['simulate', '--model', 'qwen3-14b', '--trace-output', '/tmp/'],
      /^tierkv: --trace-output is "\/tmp\/", which names no file/,
    ],
    [
      ['workload', 'describe', '--plot', '/no/such/dir/x'],
      /^tierkv: --plot \/no\/such\/dir\/x cannot be written/,
    ],
    [
      [
        'workload',
        'convert',
        'chatbot',
        '--from',
        'preset',
        '--to',
        'spec',
        '--drain-timeout-seconds',
        'NaN',
      ],
      /^tierkv: --drain-timeout-seconds is for a folder of ServeGen's/,
    ],
    [
      ['latency', 'predict', '--model', 'qwen3-14b', '--gpu-memory-utilization', '0'],
      /^tierkv: --gpu-memory-utilization is 0/,
    ],
    [['replay', 'x', '--json', '/no/such/dir/x'], /^tierkv: --json \/no\/such\/dir\/x cannot be written/],
  ];
  /** Each sixth, and the call without a command, which `main.ts` itself refuses, in a process as users have it. */
  const ways = mistakes.map(([args, says], i) => [args, says, i % 6 === 0 ? 'process' : 'call'] as const);
  it.each(ways)('%j is one line on stderr, nothing on stdout, exit code 2', async (args, says, way) => {
    const { status, stdout, stderr } = way === 'process' ? tierkv(args) : await endOf(args);
    expect(stderr.endsWith('\n')).toBe(true);
    expect(stderr.slice(0, -1)).toMatch(says);
    expect(stderr.trim().split('\n')).toHaveLength(1);
    expect(stdout).toBe('');
    expect(status).toBe(2);
  });

  it('TIERKV_DEBUG=1 adds the stack', () => {
    const { stderr } = spawnSync(process.execPath, [main, 'replay', 'x', '--requests', '0'], {
      encoding: 'utf8',
      env: { ...process.env, TIERKV_DEBUG: '1' },
    });
    expect(stderr).toMatch(/\n {4}at /);
  });

  it.each([
    // by source, but for the rows of tiers that give options their names, and by the parts of the bundle that have code of
    // commands
    [
      sources,
      /src\/cli\/program\.ts/,
      /src\/(backends\/(?!host\/posix)|sim\/(?!links\/machineTiers))|src\/cli\/(replay|workload|latency|bench)/,
    ],
    [main, /program/, /\/(command|run|runtime|simulation|transferEngine)-/],
  ])(
    '--help lists the commands without loading any of them, nor a GPU binding: %#',
    (file, loaded, others) => {
      const traceImports =
        "import { registerHooks } from 'node:module'; registerHooks({ resolve(name, context, next) {" +
        ' const found = next(name, context); console.error(found.url); return found; } });';
      const { status, stdout, stderr } = spawnSync(
        process.execPath,
        ['--import', `data:text/javascript,${traceImports}`, file, '--help'],
        { encoding: 'utf8', timeout: 120_000 },
      );
      expect(status).toBe(0);
      const commands = [...stdout.matchAll(/^ {2}([a-z]+) /gm)].map(([, name]) => name);
      expect(commands).toEqual(expect.arrayContaining(['replay', 'workload', 'latency', 'bench', 'help']));
      expect(stderr).toMatch(loaded); // the trace works
      expect(stderr).not.toMatch(/webgpu|koffi/);
      expect(stderr).not.toMatch(others);
    },
  );

  it('--version is the version of the package', async () => {
    const { version } = (await import('../../../package.json', { with: { type: 'json' } })).default;
    expect(tierkv(['--version'])).toMatchObject({ status: 0, stdout: `${version}\n`, stderr: '' });
  });

  it.skipIf(!existsSync('/dev/full'))(
    'a log that finds no room is one line, also when closing it fails too',
    () => {
      const trace = join(
        import.meta.dirname,
        '..',
        '..',
        '..',
        'data',
        'mooncake-conversation-excerpt.jsonl.gz',
      );
      const to = ['--driver', 'modeled', '--num-requests', '5', '--log', '/dev/full'];
      const { status, stderr } = tierkv(['replay', trace, ...to]);
      expect(stderr).toMatch(/^tierkv: the system refused: ENOSPC: [^\n]*\n$/);
      expect(status).toBe(2);
    },
  );

  it.skipIf(!existsSync('/dev/full'))('results that find no room on the disk are one line too', () => {
    const full = openSync('/dev/full', 'w');
    const { status, stderr } = spawnSync(process.execPath, [main, '--help'], {
      stdio: ['ignore', full, 'pipe'],
      encoding: 'utf8',
      timeout: 120_000,
    });
    closeSync(full);
    expect(stderr).toMatch(/^tierkv: the system refused: ENOSPC: [^\n]*\n$/);
    expect(status).toBe(2);
  });

  it('a reader that goes away ends it quietly', async () => {
    const child = spawn(process.execPath, [main, 'replay', '--help'], { stdio: ['ignore', 'pipe', 'pipe'] });
    child.stdout.destroy();
    let stderr = '';
    child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
    const [code] = await once(child, 'close');
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  });
});

describe('how an error ends the process', () => {
  it('what the user can mend: one line with its code, whatever the message holds', () => {
    const error = new TierKVError('TKV_INPUT', 'a\nb.jsonl:3: hash_ids is \u{1b}[31m"x". Mend the line.');
    const { exitCode, text } = endingOf(error, 'tierkv replay');
    expect(exitCode).toBe(2);
    expect(text).toBe('tierkv: a b.jsonl:3: hash_ids is ?[31m"x". Mend the line. [TKV_INPUT]');
  });

  it('a message of any length: its beginning and its end', () => {
    const error = new TierKVError('TKV_INPUT', `file.csv:1: is "${'x'.repeat(1e6)}". Mend the line`);
    const { text } = endingOf(error, 'tierkv');
    expect(text.length).toBeLessThan(2100);
    expect(text).toMatch(/^tierkv: file\.csv:1: is "xxx.*xxx"\. Mend the line \[TKV_INPUT\]$/);
  });

  it('what the system refused: one line, exit code 2', () => {
    const error = Object.assign(new Error('ENOSPC: no space left on device, write'), {
      code: 'ENOSPC',
      errno: -28,
      syscall: 'write',
    });
    expect(endingOf(error, 'tierkv')).toEqual({
      exitCode: 2,
      text: 'tierkv: the system refused: ENOSPC: no space left on device, write [TKV_IO]',
    });
  });

  it('a fault of ours: the message, a hint, exit code 1', () => {
    for (const fault of [new TypeError('x is undefined'), 'a thrown text', undefined]) {
      const { exitCode, text } = endingOf(fault, 'tierkv');
      expect(exitCode).toBe(1);
      expect(text.split('\n')).toHaveLength(2);
      expect(text).toMatch(/TIERKV_DEBUG=1/);
    }
  });

  it('a stop from outside: the exit code that shells expect', () => {
    expect(endingOf(new Interrupted('SIGINT'), 'tierkv').exitCode).toBe(130);
    expect(endingOf(new Interrupted('SIGTERM'), 'tierkv').exitCode).toBe(143);
  });

  it('help that was asked for: no error at all', () => {
    expect(endingOf(new CommanderError(0, 'commander.helpDisplayed', '(outputHelp)'), 'tierkv')).toEqual({
      exitCode: 0,
      text: '',
    });
  });
});
