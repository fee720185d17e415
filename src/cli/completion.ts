/**
 * `tierkv completion SHELL`: a script that completes commands, options and the names that options take. It is made of the
 * commands themselves, so what they say in help is what is completed.
 */

import { Argument, Command, type Option } from 'commander';
import { latencyBackends } from '../sim/latency/latencyNames.ts';
import { printText } from './output.ts';

const shells = ['bash', 'zsh', 'fish'] as const;
type Shell = (typeof shells)[number];

interface CompletedOption {
  /** `--gpu`, and `-o` where there is one. */
  readonly flags: readonly string[];
  readonly about: string;
  readonly takesValue: boolean;
  /** Values by name; empty where any text or file may stand. */
  readonly values: readonly string[];
}

interface CompletedCommand {
  /** Behind `tierkv`: `workload describe`; '' for tierkv itself. */
  readonly path: string;
  readonly about: string;
  readonly subcommands: readonly string[];
  readonly options: readonly CompletedOption[];
  /** Words that arguments may be, where they are known. */
  readonly words: readonly string[];
}

/** Values of options that several commands have, by their flags. */
type KnownNames = ReadonlyMap<string, readonly string[]>;

async function knownNames(): Promise<KnownNames> {
  const { hardwareNames, modelNames } = await import('../sim/build/dataFiles.ts');
  const { evictionPolicyNames } = await import('../runtime/eviction/registry.ts');
  const { presetNames } = await import('../sim/workload/presets.ts');
  return new Map<string, readonly string[]>([
    ['--gpu', hardwareNames()],
    ['--model', modelNames()],
    ['--workload', presetNames],
    ['--latency-model', latencyBackends],
    ['--eviction', evictionPolicyNames],
  ]);
}

function optionOf(option: Option, names: KnownNames): CompletedOption {
  const flags = [option.short, option.long].filter((flag) => flag !== undefined);
  return {
    flags,
    about: option.description,
    takesValue: option.required || option.optional,
    values: option.argChoices ?? (option.required ? (names.get(String(option.long)) ?? []) : []),
  };
}

/** The command and all below it. @param above path of the command that it belongs to */
function completedCommands(command: Command, names: KnownNames, above?: string): CompletedCommand[] {
  const path = above === undefined ? '' : `${above} ${command.name()}`.trim();
  const subcommands = command.commands.map((sub) => sub.name());
  const help: CompletedOption = {
    flags: ['-h', '--help'],
    about: 'display help',
    takesValue: false,
    values: [],
  };
  const own: CompletedCommand = {
    path,
    about: command.summary() || command.description(),
    subcommands,
    options: [
      ...command.options.filter(({ hidden }) => !hidden).map((option) => optionOf(option, names)),
      help,
    ],
    words: command.registeredArguments.flatMap(({ argChoices }) => argChoices ?? []),
  };
  return [own, ...command.commands.flatMap((sub) => completedCommands(sub, names, path))];
}

/** The first sentence of a description, on one line. */
function short(about: string): string {
  return about.replace(/\s+/g, ' ').replace(/\.$/, '').slice(0, 90);
}

const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

/** Words that may stand behind a command, in words of a `case` of bash and zsh. */
function cases(commands: readonly CompletedCommand[]): string {
  const behind = commands.map(({ path, subcommands, options, words }) => {
    const flags = options.flatMap((option) => option.flags.filter((flag) => flag.startsWith('--')));
    return `    ${quoted(path)}) words=${quoted([...subcommands, ...words, ...flags].join(' '))} ;;`;
  });
  const values = commands.flatMap(({ path, options }) =>
    options
      .filter(({ takesValue }) => takesValue)
      .flatMap(({ flags, values: known }) =>
        flags.map(
          (flag) => `    ${quoted(`${path} ${flag}`)}) isValue=1 words=${quoted(known.join(' '))} ;;`,
        ),
      ),
  );
  const paths = commands
    .filter(({ path }) => path !== '')
    .map(({ path }) => `      ${quoted(path)}) path=$next ;;`);
  return `  for word in "\${before[@]}"; do
    next="\${path:+$path }$word"
    case "$next" in
${paths.join('\n')}
    esac
  done
  case "$path" in
${behind.join('\n')}
  esac
  case "$path $last" in
${values.join('\n')}
  esac`;
}

function bashScript(commands: readonly CompletedCommand[]): string {
  return `# bash completion of tierkv: source it, or put it into ~/.local/share/bash-completion/completions/tierkv
_tierkv() {
  local current="\${COMP_WORDS[COMP_CWORD]}" last="\${COMP_WORDS[COMP_CWORD-1]}" path='' words='' isValue='' word next
  local -a before=("\${COMP_WORDS[@]:1:COMP_CWORD-1}")
${cases(commands)}
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  # files where no name is known
  if [ \${#COMPREPLY[@]} -eq 0 ]; then compopt -o default 2>/dev/null; fi
}
complete -F _tierkv tierkv
`;
}

function zshScript(commands: readonly CompletedCommand[]): string {
  return `#compdef tierkv
# zsh completion of tierkv: source it, or put it as _tierkv into a folder of $fpath
_tierkv() {
  local current="\${words[CURRENT]}" last="\${words[CURRENT-1]}"
  local -a before
  before=("\${(@)words[2,CURRENT-1]}")
  _tierkv_words
}
_tierkv_words() {
  local path_='' words_='' isValue='' word next
${cases(commands)
  .replaceAll(/\bpath\b/g, 'path_')
  .replaceAll(/\bwords=/g, 'words_=')}
  if [[ -n $words_ ]]; then compadd -- \${=words_}; fi
  if [[ -n $isValue && -z $words_ || -z $isValue && $current != -* ]]; then _files; fi
}
if [ "$funcstack[1]" = _tierkv ]; then _tierkv "$@"; else compdef _tierkv tierkv; fi
`;
}

function fishScript(commands: readonly CompletedCommand[]): string {
  const lines = ['# fish completion of tierkv: put it into ~/.config/fish/completions/tierkv.fish'];
  for (const { path, subcommands, options, words } of commands) {
    const seen = path
      .split(' ')
      .filter((word) => word !== '')
      .map((word) => `__fish_seen_subcommand_from ${word}`);
    const first =
      subcommands.length === 0 ? [] : [`not __fish_seen_subcommand_from ${subcommands.join(' ')}`];
    const when = (more: readonly string[]): string => {
      const all = [...seen, ...more];
      return all.length === 0 ? '' : ` -n ${quoted(all.join('; and '))}`;
    };
    for (const name of subcommands) {
      const sub = commands.find((each) => each.path === `${path} ${name}`.trim());
      lines.push(`complete -c tierkv${when(first)} -f -a ${name} -d ${quoted(short(sub?.about ?? ''))}`);
    }
    if (words.length > 0) lines.push(`complete -c tierkv${when([])} -a ${quoted(words.join(' '))}`);
    for (const { flags, about, takesValue, values } of options) {
      const names = flags.map((flag) =>
        flag.startsWith('--') ? `-l ${flag.slice(2)}` : `-s ${flag.slice(1)}`,
      );
      const takes = values.length > 0 ? ` -x -a ${quoted(values.join(' '))}` : takesValue ? ' -r' : '';
      lines.push(`complete -c tierkv${when(first)} ${names.join(' ')}${takes} -d ${quoted(short(about))}`);
    }
  }
  return `${lines.join('\n')}\n`;
}

/** The script of a shell. @param commands of `completedCommands` */
function completionScript(shell: Shell, commands: readonly CompletedCommand[]): string {
  const scripts = { bash: bashScript, zsh: zshScript, fish: fishScript };
  return scripts[shell](commands);
}

/** @param loadAll the program with all of its commands */
export function completionCommand(loadAll: () => Promise<Command>): Command {
  return new Command('completion')
    .description('Print a script that completes commands, options and names in a shell.')
    .addArgument(new Argument('<shell>', 'the shell that it is for').choices(shells))
    .addHelpText(
      'after',
      '\nIn bash: source <(tierkv completion bash)\nIn fish: tierkv completion fish | source',
    )
    .action(async (shell: Shell) => {
      printText(completionScript(shell, completedCommands(await loadAll(), await knownNames())));
    });
}
