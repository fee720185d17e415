/** `tierkv explain`: why a request found what it found, from a decision log or in a simulation. */

import { Command } from 'commander';
import { fileLines, readText } from '../io/files/inputs.ts';
import { requireWritableTargets, writeResultJson } from '../io/files/results.ts';
import { startProgressBar } from '../io/printing/progress.ts';
import { configError } from '../runtime/errors.ts';
import { notes } from './help.ts';
import { addSimulateOptions, askedOf, givenOptions, jsonOption } from './optionRows.ts';
import { printText } from './output.ts';

interface ExplainValues {
  readonly request?: string;
  readonly block?: string;
  readonly prefix?: string;
  readonly simulated: boolean;
  readonly json?: string;
}

const helpEnd = `
A log is written by KVRuntime.open({ log: FILE }), by the example server with --log FILE, and by tierkv replay --log FILE.
--prefix FILE has keys, 32 hexadecimal digits a line, or tokens as JSON: see docs/guide/why-was-it-evicted.md.

  tierkv explain kv.log --request 12
  tierkv explain --simulated --request request_7 -- --model qwen/qwen3-14b --num-requests 100

A running process explains itself: kv.explain(request) of a runtime that was opened with explain: true.
`;

export function explainCommand(): Command {
  return new Command('explain')
    .description('Say why a request found what it found: which tier served each block, or why it missed.')
    .argument('[log]', 'decision log; with --simulated: arguments of tierkv simulate, behind --')
    .argument('[arguments...]')
    .option('--request <id>', 'a request by its id, or a sequence by its number')
    .option('--block <key>', 'the life of a block, by its key of 32 hexadecimal digits')
    .option('--prefix <file>', 'what a request for this prefix would find at the end of the log')
    .option('--simulated', 'run a simulation, and explain a request of it', false)
    .addOption(jsonOption())
    .addHelpText('after', notes(helpEnd))
    .action(async (first: string | undefined, rest: string[], values: ExplainValues) => {
      const questions = [values.request, values.block, values.prefix].filter((each) => each !== undefined);
      if (questions.length !== 1) {
        const problem = questions.length === 0 ? 'is missing' : 'is given beside another question';
        throw configError('--request', problem, 'Ask one of --request ID, --block KEY and --prefix FILE.');
      }
      requireWritableTargets(
        { '--json': values.json },
        values.simulated ? {} : { LOG: first, '--prefix': values.prefix },
      );
      const told = values.simulated
        ? await fromSimulation(first === undefined ? rest : [first, ...rest], values)
        : await fromLog(first, rest, values);
      if (values.json !== undefined) writeResultJson(values.json, 'explain', told.value);
      printText(told.text);
    });
}

interface ExplainedText {
  readonly text: string;
  readonly value: object;
}

async function fromLog(
  log: string | undefined,
  rest: readonly string[],
  values: ExplainValues,
): Promise<ExplainedText> {
  if (log === undefined)
    throw configError('log', 'is missing', 'Name a decision log, or ask for --simulated.');
  if (rest.length > 0) throw configError('log', 'is one file', `Leave ${rest[0]} out.`);
  const { explanationText, lifeText } = await import('../observe/explain/explanationText.ts');
  const { LogExplainer } = await import('../observe/explain/logExplainer.ts');
  const { keyOf, readPrefix } = await import('../observe/explain/prefix.ts');
  const prefix = values.prefix === undefined ? undefined : readPrefix(readText(values.prefix), values.prefix);
  const key = values.block === undefined ? undefined : keyOf(values.block);
  if (values.block !== undefined && key === undefined) {
    throw configError('--block', `is "${values.block}"`, 'Give a key of 32 hexadecimal digits.');
  }
  using bar = startProgressBar('lines');
  let count = 0;
  const lines = function* (): Generator<string> {
    for (const line of fileLines(log)) {
      if (++count % 20_000 === 0) bar.update({ share: 0, done: count });
      yield line;
    }
  };
  const explainer = new LogExplainer(lines(), log, key);
  if (key !== undefined) {
    const life = explainer.life(key);
    return { value: life, text: lifeText(life) };
  }
  const explanation =
    prefix === undefined ? explainer.request(values.request ?? '') : explainer.prefix(prefix);
  return { value: explanation, text: explanationText(explanation) };
}

async function fromSimulation(args: readonly string[], { request }: ExplainValues): Promise<ExplainedText> {
  if (request === undefined) {
    throw configError('--simulated', 'goes with --request', 'Name a request, such as --request request_0.');
  }
  const command = addSimulateOptions(new Command('simulate').argument('[workload]').exitOverride());
  command.configureOutput({ writeErr: () => {} }).parse([...args], { from: 'user' });
  const asked = askedOf(command, command.args[0]);
  const { refuseIdle, refuseOutputs } = await import('../sim/build/needs.ts');
  refuseOutputs(
    givenOptions(command),
    'an explanation',
    'Leave it out; --json before -- writes the explanation.',
  );
  const { explanationText } = await import('../observe/explain/explanationText.ts');
  const { explainPlanned } = await import('../observe/explain/explainSimulation.ts');
  const { planSimulation } = await import('../sim/build/plan.ts');
  const plan = planSimulation(asked.deployment);
  refuseIdle(plan, plan.workload.kind === 'trace');
  using bar = startProgressBar('requests');
  const explainer = explainPlanned(plan, (done, nowUs) =>
    bar.update({ share: 0, done, note: `${(nowUs / 1e6).toFixed(0)} s simulated` }),
  );
  const explanations = explainer.request(request);
  const text = explanations.map((each) => `${each.instance}: ${explanationText(each)}`).join('\n');
  return { value: { instances: explanations }, text };
}
