/**
 * The list of commands. One file a command; only the command that is run is loaded, so that `tierkv --help`
 * needs neither a GPU binding nor a simulator. Commands throw; `main.ts` decides how the process ends.
 */

import { Command } from 'commander';
import { packageVersion } from '../packageFiles.ts';
import { configError } from '../runtime/errors.ts';
import { styleHelp } from './help.ts';

interface CommandEntry {
  readonly name: string;
  readonly summary: string;
  readonly load: () => Promise<Command>;
}

const entries: readonly CommandEntry[] = [
  {
    name: 'replay',
    summary: 'replay a request trace through the tiers, with real bytes or a model of them',
    load: async () => (await import('./replay/command.ts')).replayCommand(),
  },
  {
    name: 'simulate',
    summary: 'simulate the serving of a workload on instances with tiered KV caches',
    load: async () => (await import('./simulate/command.ts')).simulateCommand(),
  },
  {
    name: 'sweep',
    summary: 'simulate a grid of deployments, and name the cheapest that meets the targets',
    load: async () => (await import('./sweep/command.ts')).sweepCommand(),
  },
  {
    name: 'plan',
    summary: 'find the cheapest deployment that meets targets, and say how sure that is',
    load: async () => (await import('./plan/command.ts')).planCommand(),
  },
  {
    name: 'evaluate',
    summary: 'score policies on suites of workloads, and say what went wrong and why',
    load: async () => (await import('./evaluate/command.ts')).evaluateCommand(),
  },
  {
    name: 'evolve',
    summary: 'search for policies that beat every preset, without any language model',
    load: async () => (await import('./evolve/command.ts')).evolveCommand(),
  },
  {
    name: 'export',
    summary: 'write a policy as a file that vLLM, llm-d or Dynamo loads',
    load: async () => (await import('./export.ts')).exportCommand(),
  },
  {
    name: 'worker',
    summary: 'run cases of sweep, evaluate and evolve that other machines ask for',
    load: async () => (await import('./worker.ts')).workerCommand(),
  },
  {
    name: 'gateway',
    summary: 'route requests to servers by the policies that were searched in the simulator',
    load: async () => (await import('./gateway.ts')).gatewayCommand(),
  },
  {
    name: 'doctor',
    summary: 'say which byte of a prompt broke a prefix cache, from recorded requests',
    load: async () => (await import('./doctor.ts')).doctorCommand(),
  },
  {
    name: 'parity',
    summary: 'serve traffic for real, and compare it with its replay and its simulation',
    load: async () => (await import('./parity/command.ts')).parityCommand(),
  },
  {
    name: 'workload',
    summary: 'generate, inspect and convert workloads of requests',
    load: async () => (await import('./workload/command.ts')).workloadCommand(),
  },
  {
    name: 'latency',
    summary: 'predict, fit and check how long a step of the engine takes',
    load: async () => (await import('./latency/command.ts')).latencyCommand(),
  },
  {
    name: 'observe',
    summary: 'drive a running server with a workload, and record when its tokens come',
    load: async () => (await import('./observe.ts')).observeCommand(),
  },
  {
    name: 'compare',
    summary: 'say how far the prediction of a measured run is from the run',
    load: async () => (await import('./compare.ts')).compareCommand(),
  },
  {
    name: 'disk',
    summary: 'inspect, check and export a disk tier, offline',
    load: async () => (await import('./disk/command.ts')).diskCommand(),
  },
  {
    name: 'bench',
    summary: 'measure the manager and what the links of this machine give',
    load: async () => (await import('./bench/command.ts')).benchCommand(),
  },
  {
    name: 'explain',
    summary: 'say why a request found what it found, block by block',
    load: async () => (await import('./explain.ts')).explainCommand(),
  },
  {
    name: 'serve-dashboard',
    summary: 'show in a browser what happened in the run of a decision log',
    load: async () => (await import('./dashboard.ts')).dashboardCommand(),
  },
  {
    name: 'calibrate',
    summary: 'measure the links of this machine as a profile for the simulator',
    load: async () => (await import('./calibrate/command.ts')).calibrateCommand(),
  },
  {
    name: 'completion',
    summary: 'print a script that completes all of this in bash, zsh or fish',
    load: async () => (await import('./completion.ts')).completionCommand(loadAll),
  },
];

/** The program with all commands, for what has to know them all. */
async function loadAll(): Promise<Command> {
  const program = new Command('tierkv').version('');
  for (const { summary, load } of entries) program.addCommand((await load()).summary(summary));
  return program;
}

/** Name of the command that `args` asks for or asks help on, if any. */
function wantedCommand(args: readonly string[]): string | undefined {
  const words = args.filter((arg) => !arg.startsWith('-'));
  return words[0] === 'help' ? words[1] : words[0];
}

/** `tierkv workload generate`: the words that call the command. */
function callOf(command: Command): string {
  return command.parent === null ? command.name() : `${callOf(command.parent)} ${command.name()}`;
}

/** A call of each command that does something of use, without the word tierkv. */
export const examples: Readonly<Record<string, string>> = {
  replay: 'replay trace.jsonl.gz --hbm 1000 --ddr 5000 --nvme all',
  simulate: 'simulate --model llama-3.1-70b --workload chat --rate 10 --num-requests 1000 --ddr 256GiB',
  sweep:
    'sweep --grid num-instances=1,2,4 --target-ttft 500ms -- --model qwen3-14b --rate 20 --num-requests 500',
  plan: 'plan --model llama-3.1-70b --workload chatbot --rate 20 --target ttft_p99=500ms',
  evaluate: 'evaluate mine.star routing/lor --latency all',
  evolve: 'evolve --out search --minutes 5 --population 4',
  export: 'export hazard --to vllm --out tierkv_hazard.py',
  worker: 'worker redis://:SECRET@server:6379 --threads 8',
  gateway: 'gateway --backend a=http://127.0.0.1:8001 --backend b=http://127.0.0.1:8002 --policy mine.json',
  'gateway replay': 'gateway replay gateway.log',
  'gateway shadows': 'gateway shadows gateway.log',
  doctor: 'doctor requests.jsonl --report doctor.html',
  parity: 'parity --num-requests 40 --report parity.html',
  'workload generate': 'workload generate --workload chatbot --rate 5 --num-requests 1000 --output chatbot',
  'workload describe':
    'workload describe log.csv --columns arrival=ts:epoch-ms,input=prompt_len,output=gen_len',
  'workload convert': 'workload convert azure.csv.gz --to tracev2 --output azure',
  'latency predict': 'latency predict --model qwen3-14b --gpu H100 --batch prefill=2048,decode=64@512',
  'latency fit': 'latency fit --requests run.jsonl --gpu H100 --model qwen3-8b --out mine.json',
  'latency check': 'latency check --gpu H100 --plot check.svg',
  observe: 'observe log.csv --target http://localhost:8000 --vocabulary 32000 --out run.jsonl',
  compare: 'compare run.jsonl --gpu H100 --model qwen3-8b --coefficients mine.json',
  'disk stat': 'disk stat /var/cache/kv',
  'disk fsck': 'disk fsck /var/cache/kv',
  'disk export': 'disk export /var/cache/kv > records.jsonl',
  bench: 'bench links --quick --report bench.html',
  explain: 'explain kv.log --request 12',
  'serve-dashboard': 'serve-dashboard kv.log --port 8081',
  calibrate: 'calibrate --dir /mnt/nvme --out links.json',
  completion: 'completion zsh > ~/.zfunc/_tierkv',
};

/** Errors are thrown to the caller, who writes them; they know the command whose help shows the way. */
function throwErrors(command: Command): void {
  const call = callOf(command).replace(/^tierkv /, '');
  styleHelp(command, call, examples[call]);
  command.configureOutput({ writeErr: () => {} }).exitOverride((error) => {
    throw Object.assign(error, { call: callOf(command) });
  });
  for (const sub of command.commands) throwErrors(sub);
}

/** The program for one run, and the words under which its help is found. */
export async function makeProgram(args: readonly string[]): Promise<{ program: Command; help: string }> {
  const program = new Command('tierkv')
    .description('A tiered KV cache for LLM serving: GPU memory, host memory and disk behind one manager.')
    .version(packageVersion());
  const wanted = wantedCommand(args);
  let help = 'tierkv';
  for (const { name, summary, load } of entries) {
    if (name === wanted) {
      program.addCommand((await load()).summary(summary));
      help = `tierkv ${name}`;
    } else {
      program.command(name).description(summary);
    }
  }
  throwErrors(program);
  program.hook('preAction', async (_, called) => {
    refuseEmptyValues(called);
    if (called.getOptionValue('plot') !== undefined) {
      // a missing package shows now, not after minutes of work
      const { requirePlots } = await import('../io/printing/chart.ts');
      await requirePlots();
    }
    const { useStandardStreams } = await import('./process.ts');
    await useStandardStreams(called);
  });
  return { program, help };
}

// An option or argument that is given and empty is mostly a variable of the shell that was not set.

/** @throws TKV_CONFIG naming the first that is empty */
function refuseEmptyValues(command: Command): void {
  for (const [i, argument] of command.registeredArguments.entries()) {
    if (!argument.variadic && isEmpty(command.processedArgs[i])) {
      throw configError(
        argument.name(),
        'is empty',
        argument.required ? 'Name one.' : 'Name one, or leave it out.',
      );
    }
  }
  for (const option of command.options) {
    const name = option.attributeName();
    if (command.getOptionValueSource(name) !== 'cli' || !isEmpty(command.getOptionValue(name))) continue;
    throw configError(option.long ?? option.flags, 'is empty', 'Give it a value, or leave it out.');
  }
}

function isEmpty(value: unknown): boolean {
  const values: readonly unknown[] = Array.isArray(value) ? value : [value];
  return values.some((each) => typeof each === 'string' && each.trim() === '');
}
