/** `tierkv export POLICY --to TARGET`: a policy as a file that another server loads. */

import path from 'node:path';
import { Command } from 'commander';
import { requireWritableTarget, writeText } from '../io/files/results.ts';
import { configError } from '../runtime/errors.ts';
import type { EvictionChoice } from '../runtime/eviction/evictionPolicy.ts';
import { inFlags, oneOf } from './flags.ts';
import { notes } from './help.ts';
import { printText } from './output.ts';

const targets = ['vllm', 'scorer'] as const;

const helpEnd = `
vllm: POLICY is an eviction policy by name (lru, hazard, ...), a preset (eviction/hazard) or a bundle (.json) with an eviction
slot. The file is a Python module for the offloading connector; the settings that load it are printed, and stand in it.
scorer: POLICY is a preset (routing/llm-d) or a bundle with a routing slot. Weights for llm-d or Dynamo, and a list of what
they do not say. docs/guide/elsewhere.md has both.

  tierkv export hazard --to vllm --out tierkv_hazard.py
  tierkv export best.json --to scorer --out picker.yaml
`;

export function exportCommand(): Command {
  return new Command('export')
    .description('Write a policy as a file that another server loads: vLLM, llm-d or Dynamo.')
    .argument('<policy>', 'eviction policy by name, preset, or bundle (.json)')
    .requiredOption('--to <target>', `${targets.join(' or ')}`)
    .option('--parameters <list>', 'numbers of an eviction policy by name, as behindLru=0.01')
    .option('--out <file>', 'where to write it (default: standard output)')
    .addHelpText('after', notes(helpEnd))
    .action(async (policy: string, values: Readonly<Record<string, string | undefined>>) => {
      const { out, parameters } = values;
      const to = oneOf('--to', values.to ?? '', targets);
      if (out !== undefined) requireWritableTarget(out, '--out');
      const { openPolicy } = await import('../policy/evaluate/openPolicy.ts');
      if (to === 'scorer') {
        refuseParameters(parameters);
        const { routerWeights } = await import('../policy/export/routerWeights.ts');
        const { router, text, notExpressed } = routerWeights(openPolicy(policy));
        write(out, text);
        tell(
          out,
          `${router}: ${out ?? 'the text'} says how the routing weighs.\n${notExpressed
            .map((each) => `not expressed: ${each}\n`)
            .join('')}`,
        );
        return;
      }
      const { evictionOf, vllmModule } = await import('../policy/export/vllmModule.ts');
      const isBundle = /[./]/.test(policy);
      if (isBundle) refuseParameters(parameters);
      const choice: EvictionChoice = isBundle
        ? evictionOf(openPolicy(policy))
        : { policy, ...numbersOf(parameters) };
      const file = out ?? `tierkv_${choice.policy}.py`;
      const moduleName = path.basename(file).replace(/\.py$/, '');
      const { source, settings } = inFlags({ out: '--out', policy: 'POLICY' }, () =>
        vllmModule(choice, moduleName),
      );
      write(out, source);
      const config = JSON.stringify(settings);
      tell(
        out,
        `${out ?? 'The text'} is the module ${moduleName}: put it where Python finds it (PYTHONPATH), and into ` +
          `kv_connector_extra_config, beside cpu_bytes_to_use:\n${config}\n`,
      );
    });
}

function write(out: string | undefined, text: string): void {
  if (out === undefined) process.stdout.write(text);
  else writeText(out, text);
}

/** Writes lines for people, never where the result goes. */
function tell(out: string | undefined, text: string): void {
  if (out === undefined) process.stderr.write(text);
  else printText(text);
}

function refuseParameters(parameters: string | undefined): void {
  if (parameters === undefined) return;
  throw configError(
    '--parameters',
    'is for an eviction policy by name',
    'Write the numbers into the bundle.',
  );
}

/** `behindLru=0.01,...` as numbers. */
function numbersOf(list: string | undefined): Record<string, number> {
  const numbers: Record<string, number> = {};
  for (const part of list === undefined ? [] : list.split(',')) {
    const [name, text, ...more] = part.split('=');
    const value = Number(text);
    if (
      name === '' ||
      text === undefined ||
      text.trim() === '' ||
      more.length > 0 ||
      !Number.isFinite(value)
    ) {
      throw configError(
        '--parameters',
        `has ${JSON.stringify(part)}`,
        'Write name=number, as behindLru=0.01.',
      );
    }
    numbers[name] = value;
  }
  return numbers;
}
