/**
 * An eviction policy as one Python module that vLLM's offloading connector loads (`cache_policy_module_path`). The
 * module is the shared part `data/vllm/cache.py`, the policy's own file beside it, and a class that names its
 * parameters. It imports nothing of tierkv.
 */

import { readFileSync } from 'node:fs';
import { dataFolder, packageVersion } from '../../packageFiles.ts';
import { configError, described, unknownName } from '../../runtime/errors.ts';
import type { EvictionChoice } from '../../runtime/eviction/evictionPolicy.ts';
import { describeEviction, evictionPolicyNames, resolvePolicy } from '../../runtime/eviction/registry.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import type { PolicyBundle } from '../evolve/bundle/policyBundle.ts';
import { PolicyError } from '../sandbox/program.ts';

/** The version of vLLM whose interface the modules follow. */
const VLLM_VERSION = '0.33.0';

/** Policies that a module can have. The others need what vLLM does not tell a policy. */
const files: readonly string[] = ['lru', 'fifo', 'lfu', 'arc', 's3fifo', 'hazard'];

/** The eviction of a bundle. @throws PolicyError contract where it has none */
export function evictionOf(bundle: PolicyBundle): EvictionChoice {
  checkInputs({ bundle }, { bundle: is.object() });
  const { eviction } = bundle;
  if (eviction?.type === 'parameterized') {
    return { ...(eviction.parameters as Readonly<Record<string, number>>), policy: eviction.template };
  }
  throw new PolicyError('contract', 'the bundle has no eviction. Give it one, such as eviction/hazard', {
    path: 'eviction',
  });
}

/** Names of the eviction policies that can run inside vLLM. */
export const vllmPolicyNames: readonly string[] = evictionPolicyNames.filter((name) => files.includes(name));

/** A module for vLLM, and what its connector is told. */
interface VllmModule {
  /** Name of the class, which `eviction_policy` names. */
  readonly className: string;
  readonly source: string;
  /** Entries of `kv_connector_extra_config`, beside `cpu_bytes_to_use`. */
  readonly settings: { readonly eviction_policy: string; readonly cache_policy_module_path: string };
}

/**
 * The module of an eviction policy.
 * @param moduleName under which Python finds it: the name of its file, without `.py`
 * @throws TKV_CONFIG for a policy or parameter that does not exist or that vLLM cannot run, or a name Python cannot import
 */
export function vllmModule(choice: EvictionChoice, moduleName: string): VllmModule {
  checkInputs({ choice, moduleName }, { choice: is.fields({ policy: is.text() }), moduleName: is.text() });
  requireImportable(moduleName);
  if (!evictionPolicyNames.includes(choice.policy)) {
    throw unknownName('policy', choice.policy, vllmPolicyNames);
  }
  if (!files.includes(choice.policy)) {
    throw configError(
      'policy',
      `is ${choice.policy}, which goes by the owners of blocks, and vLLM does not tell a policy who owns a chunk`,
      `Take one of ${vllmPolicyNames.join(', ')}.`,
    );
  }
  const { policy, ...parameters } = resolvePolicy(choice);
  requireInRange(policy, parameters);
  const className = `Tierkv${policy[0].toUpperCase()}${policy.slice(1)}`;
  const settings = { eviction_policy: className, cache_policy_module_path: moduleName };
  const values = Object.entries(parameters).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
  const about = `${describeEviction(policy).about}${values.length > 0 ? ` (${values.join(', ')})` : ''}`;
  const source = [
    heading(`Eviction policy ${policy} of tierkv: ${about}.`, settings),
    part('cache'),
    part(policy),
    classText(className, [`Policy(${['self', ...values].join(', ')})`], `The policy ${policy} of tierkv.`),
  ];
  return { className, source: `${source.join('\n\n')}`, settings };
}

function heading(title: string, settings: VllmModule['settings']): string {
  const lines = JSON.stringify({ cpu_bytes_to_use: 8_000_000_000, ...settings }, null, 2).split('\n');
  return `"""${title}

Made by the command export of tierkv ${packageVersion()} for the interface of vLLM ${VLLM_VERSION}: CachePolicy of
vllm/v1/kv_offload/cpu/policies/base.py. The file must lie where Python finds it as ${settings.cache_policy_module_path}. Settings of the
offloading connector, in kv_connector_extra_config:

${lines.map((line) => `    ${line}`).join('\n')}
"""

import bisect
import heapq
import math
import time
from collections import OrderedDict

from vllm.v1.kv_offload.cpu.policies.base import CachePolicy

VLLM_VERSION = "${VLLM_VERSION}"
`;
}

function part(name: string): string {
  return readFileSync(new URL(`vllm/${name}.py`, dataFolder()), 'utf8');
}

function classText(name: string, [made]: readonly string[], about: string): string {
  return `class ${name}(Cache):
    """${about}"""

    def make_policy(self):
        return ${made}
`;
}

/** @throws TKV_CONFIG naming the parameter that is out of its range */
function requireInRange(policy: string, values: Readonly<Record<string, string | number | boolean>>): void {
  for (const [name, { min, max }] of Object.entries(describeEviction(policy).parameters)) {
    const value = values[name];
    if (typeof value !== 'number') continue;
    if ((min === undefined || value >= min) && (max === undefined || value <= max)) continue;
    throw configError(name, `is ${value}`, `Give it a number from ${min} to ${max}.`);
  }
}

const PYTHON_WORDS = new Set(
  (
    'False None True and as assert async await break class continue def del elif else except finally for from global if ' +
    'import in is lambda nonlocal not or pass raise return try while with yield'
  ).split(' '),
);

function requireImportable(name: string): void {
  if (/^[A-Za-z_][A-Za-z0-9_]*$/.test(name) && !PYTHON_WORDS.has(name)) return;
  throw configError(
    'out',
    `makes the module ${described(name)}, which Python cannot import`,
    'Name the file by letters, digits and underscores, such as tierkv_hazard.py.',
  );
}
