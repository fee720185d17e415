/**
 * What vLLM says of itself when it starts, out of its log: its arguments, and how many KV blocks it has. Lines of any version
 * since 0.4 that say one of these are read, the last of each kind counts, and everything else is passed over.
 */

/** Of these, what the log says. */
export interface LoggedEngine {
  /** Arguments by vLLM's names, as `tensor_parallel_size`. */
  readonly args: Readonly<Record<string, string | number>>;
  /** Blocks of the pool, where they are said as such. */
  readonly gpuBlocks?: number;
  /** Tokens that fit, over all groups of layers: blocks of the pool / groups x tokens of a block. */
  readonly kvTokens?: number;
}

/** `'name': value`, `name=value` and `--name value` of the lines that list arguments. */
const argument = /['"]?(\w+)['"]?\s*[:=]\s*(?:'([^']*)'|"([^"]*)"|([\d.]+(?:e[+-]?\d+)?|True|False|None))/g;
const listsArguments =
  /non-default args:|Namespace\(|Initializing an? (?:V\d )?LLM engine|Initialized engine with config/;

/** A number with thousands parted by commas. */
function counted(text: string): number {
  return Number(text.replaceAll(',', ''));
}

export function parseEngineStart(text: string): LoggedEngine {
  const args: Record<string, string | number> = {};
  let gpuBlocks: number | undefined;
  let kvTokens: number | undefined;
  for (const line of text.split(/\r?\n/)) {
    const start = listsArguments.exec(line);
    if (start !== null) {
      for (const [, name, single, double, bare] of line.slice(start.index).matchAll(argument)) {
        const quoted = single ?? double;
        if (quoted !== undefined) args[name] = quoted;
        else if (/^[\d.]/.test(bare) && Number.isFinite(Number(bare))) args[name] = Number(bare);
      }
    }
    const blocks = /# (?:GPU|CUDA|cuda) blocks: ([\d,]+)|num_gpu_blocks(?: is)?: ([\d,]+)/.exec(line);
    if (blocks !== null) gpuBlocks = counted(blocks[1] ?? blocks[2]);
    const tokens = /GPU KV cache size: ([\d,]+) tokens/.exec(line);
    if (tokens !== null) kvTokens = counted(tokens[1]);
  }
  return {
    args,
    ...(gpuBlocks === undefined ? {} : { gpuBlocks }),
    ...(kvTokens === undefined ? {} : { kvTokens }),
  };
}
