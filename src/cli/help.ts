/**
 * How help is shown: wrapped at the width of the terminal, with the options that most calls need first. A command with many
 * options shows these alone, and `--help-all` shows every one.
 */

import { type Command, Help, Option } from 'commander';

/** Columns of help that no terminal shows. */
const usualWidth = 80;
/** Widest column of names; what is wider has its description in the next line. */
const mostTerm = 30;
/** Least columns of a description, as far as the names can give way. */
const leastText = 44;

/** Options shown first, by the call of the command. A command that is not here shows all that it has. */
const firstOptions: Readonly<Record<string, readonly string[]>> = {
  simulate: [
    ...['--model', '--gpu', '--tp', '--num-instances', '--workload', '--rate', '--num-requests'],
    ...['--ddr', '--deployment', '--json'],
  ],
  plan: [
    ...['--model', '--target', '--workload', '--rate', '--num-requests', '--price', '--gpu', '--max-gpus'],
    ...['--budget', '--out'],
  ],
  replay: [
    ...['--hbm', '--ddr', '--nvme', '--dir', '--block-tokens', '--num-requests', '--driver', '--eviction'],
    ...['--log', '--json'],
  ],
  evaluate: [
    ...['--slot', '--presets', '--plan', '--suite', '--seeds', '--latency', '--workloads', '--workers'],
    ...['--json', '--report'],
  ],
  evolve: [
    ...['--out', '--plan', '--slots', '--generations', '--minutes', '--population', '--seed', '--workers'],
    ...['--resume', '--report'],
  ],
  gateway: [
    ...['--backend', '--policy', '--control', '--host', '--port', '--events', '--tokenizer', '--tenants'],
    ...['--shadow', '--log'],
  ],
  parity: [
    ...['--model', '--gpu', '--workload', '--rate', '--num-requests', '--hbm', '--ddr', '--nvme'],
    ...['--engine', '--report'],
  ],
  observe: [
    ...['--target', '--out', '--model', '--vocabulary', '--num-requests', '--rate', '--speedup', '--timeout'],
    ...['--api-key-env', '--from'],
  ],
  compare: [
    ...['--gpu', '--model', '--tp', '--dp', '--max-num-seqs', '--max-num-batched-tokens', '--hbm'],
    ...['--coefficients', '--fit-share', '--json'],
  ],
  calibrate: [
    ...['--out', '--dir', '--adapter', '--quick', '--remote', '--handoffs', '--trace-data', '--trace-header'],
    ...['--sim-results', '--report'],
  ],
  'workload generate': [
    ...['--workload', '--rate', '--num-requests', '--horizon', '--prompt-tokens', '--output-tokens'],
    ...['--prefix-tokens', '--profile', '--seed', '--output'],
  ],
  'workload describe': [
    ...[
      '--from',
      '--columns',
      '--workload',
      '--rate',
      '--num-requests',
      '--horizon',
      '--sort',
      '--drop-empty',
    ],
    ...['--json', '--plot'],
  ],
  'workload convert': [
    ...['--from', '--to', '--columns', '--rate', '--num-requests', '--horizon', '--sort', '--drop-empty'],
    ...['--timeout', '--output'],
  ],
  'latency predict': [
    ...['--model', '--gpu', '--tp', '--dp', '--latency-model', '--batch', '--coefficients'],
    ...['--block-tokens', '--gpu-memory-utilization', '--json'],
  ],
  'latency fit': [
    ...['--gpu', '--steps', '--runs', '--hold-out', '--requests', '--model', '--hbm', '--fit-share'],
    ...['--out', '--json'],
  ],
};

/** Defaults that say nothing stay out: false of a flag, an empty list, what an option alone means. */
function optionDescription(option: Option): string {
  const { defaultValue, description } = option;
  const saysNothing =
    option.presetArg !== undefined ||
    defaultValue === false ||
    (Array.isArray(defaultValue) && defaultValue.length === 0);
  if (saysNothing) return description;
  const isPlain = ['string', 'number'].includes(typeof defaultValue) && option.argChoices === undefined;
  if (isPlain && option.defaultValueDescription === undefined) {
    return `${description} (default: ${String(defaultValue)})`;
  }
  return new Help().optionDescription(option);
}

const isShown = ({ hidden }: Option): boolean => !hidden;

/** A line of help: what does not fit beside its name begins in the next line. */
function formatItem(term: string, termWidth: number, description: string, helper: Help): string {
  if (description === '') return `  ${term}`;
  const left = ' '.repeat(termWidth + 4);
  const lines = helper.boxWrap(description, (helper.helpWidth ?? usualWidth) - left.length).split('\n');
  const text = lines.join(`\n${left}`);
  return term.length > termWidth ? `  ${term}\n${left}${text}` : `  ${term.padEnd(termWidth + 2)}${text}`;
}

/** Notes below the options, for `addHelpText`: paragraphs are wrapped, and one with indented lines stands as it is. */
export function notes(text: string): (shown: { readonly command: Command }) => string {
  return ({ command }) => `\n${wrapped(text, command.configureOutput().getOutHelpWidth?.() ?? usualWidth)}`;
}

function wrapped(text: string, width: number): string {
  const paragraphs = text.trim().split(/\n{2,}/);
  return paragraphs
    .map((each) => (/^ /m.test(each) ? each : new Help().boxWrap(each.replaceAll('\n', ' '), width)))
    .join('\n\n');
}

/** @param call words that call the command @param example of a call, without the word tierkv */
export function styleHelp(command: Command, call: string, example: string | undefined): void {
  const first = firstOptions[call];
  let showsAll = false;
  command.configureHelp({
    optionDescription,
    formatItem,
    padWidth(shown, helper) {
      const width = helper.helpWidth ?? usualWidth;
      return Math.min(new Help().padWidth(shown, helper), mostTerm, Math.max(8, width - leastText));
    },
    visibleOptions(shown) {
      const all = new Help().visibleOptions(shown);
      if (first === undefined || showsAll) return all;
      return all.filter(({ long = '' }) => first.includes(long) || long.startsWith('--help'));
    },
  });
  if (first !== undefined) {
    const count = command.options.filter(isShown).length;
    const title = command.options.some(({ helpGroupHeading }) => helpGroupHeading !== undefined)
      ? 'Help:'
      : '';
    const grouped = (option: Option): Option => (title === '' ? option : option.helpGroup(title));
    const all = grouped(new Option('--help-all', `display all ${count} options`));
    command.addHelpOption(grouped(new Option('-h, --help', 'display help')));
    command.addOption(all).on(`option:${all.name()}`, () => {
      showsAll = true;
      command.help();
    });
  }
  if (example !== undefined) command.addHelpText('after', `\nExample: tierkv ${example}`);
}
