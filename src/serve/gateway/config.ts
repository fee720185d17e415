/** Configuration of a gateway: its backends, its policies, its limits, and where it writes what happened. */

import type { PolicyBundle } from '../../policy/evolve/bundle/policyBundle.ts';
import { configError, described, requireInteger } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { type Kinds, optionTable } from '../../runtime/options.ts';
import type { ControlConfig } from '../../sim/control/controlPlane.ts';
import type { GatewayTiming } from '../../sim/control/gatewayQueue.ts';
import { checkControl, controlReadsKeys } from '../../sim/control/plane.ts';
import { routingPolicies } from '../../sim/control/routing/routing.ts';
import type { AnswerLimits } from './answers.ts';
import type { BackendConfig } from './backend.ts';
import type { GatewayPlan, ShadowPlan } from './plan.ts';

/** Bounds of a gateway: bytes, open requests, retries and times. */
export interface GatewayLimits extends AnswerLimits {
  /** Bytes of a request's body, and of its head. */
  readonly bodyBytes: number;
  readonly headerBytes: number;
  /** Requests that are open at once, waiting ones included. Beyond them clients get 429. */
  readonly requests: number;
  /** Bytes of the bodies of all requests that are open or being sent. Beyond them clients get 429. */
  readonly heldBytes: number;
  /** Longest time in which a client sends its request. */
  readonly uploadMs: number;
  /** Further backends that a request is tried at. */
  readonly retries: number;
  /** How long requests under way may take at the stop. */
  readonly graceMs: number;
  /** Bytes of the prints of recent prompts, with `diagnostics`. */
  readonly diagnosticsBytes: number;
}

const DAY_MS = 86_400_000;
const bound = is.integer(1, 2 ** 40);
const duration = is.integer(1, DAY_MS);
const limitsTable = optionTable(
  {
    bodyBytes: is.optional(bound, 16 * 2 ** 20),
    headerBytes: is.optional(bound, 16 * 2 ** 10),
    requests: is.optional(bound, 4096),
    heldBytes: is.optional(bound, 2 ** 30),
    uploadMs: is.optional(duration, 60_000),
    retries: is.optional(is.integer(0, 2 ** 40), 3),
    graceMs: is.optional(is.integer(0, DAY_MS), 30_000),
    diagnosticsBytes: is.optional(bound, 64 * 2 ** 20),
    headMs: is.optional(duration, 300_000),
    idleMs: is.optional(duration, 120_000),
    totalMs: is.optional(duration, 3_600_000),
    bytes: is.optional(bound, 256 * 2 ** 20),
    clientMs: is.optional(duration, 60_000),
  } satisfies Kinds<Partial<GatewayLimits>>,
  'TKV_CONFIG',
);

/** Configuration of a `Gateway`: servers, policies, limits and tenants. */
export interface GatewayConfig {
  readonly backends: readonly BackendConfig[];
  /** Policies; what they leave out `control` decides. */
  readonly policy?: PolicyBundle;
  /** Policies that decide beside, without effect. */
  readonly shadows?: readonly ShadowPlan[];
  /** Stages and signals, as the simulator has them. Default: its defaults, with signals as fresh as they come. */
  readonly control?: Partial<ControlConfig>;
  /** Timing of the queue in front of routing, where `control.gateway` has one. */
  readonly queue?: GatewayTiming;
  /** Default 127.0.0.1. */
  readonly host?: string;
  /** Default 8080; 0 for any that is free. */
  readonly port?: number;
  /** Address of the operators' port. Default 127.0.0.1; one that other machines reach needs `adminKey`. */
  readonly operatorHost?: string;
  /** Port of `/metrics` and `/gateway/...`. Default: 1000 above `port`. */
  readonly operatorPort?: number;
  /** Tokens of a block of the backends; default 16, as vLLM. */
  readonly blockTokens?: number;
  /** Most requests in the batch of a backend; default 256. */
  readonly maxSequences?: number;
  /** Blocks of each tier of a backend that does not say, HBM first; default 65,536. */
  readonly backendBlocks?: readonly number[];
  /** The `tokenizer.json` of the model; without it prompts are cut by text. */
  readonly tokenizer?: string;
  /** Secret of the keys, 16 to 32 bytes; default: drawn at the start, so that keys of two runs have nothing in common. */
  readonly keySecret?: Uint8Array;
  /** Tenants by their API keys; without them all clients are one, and their keys go on to the backends. */
  readonly tenants?: ReadonlyMap<string, string>;
  /**
   * Whether the servers keep tenants apart, so that prompts of two tenants share no block in decisions and trace. Default:
   * from when KV events tell of blocks under the name of a tenant.
   */
  readonly tenantsApart?: boolean;
  /** Asked of every request at the operators' port. Without it requests of this machine alone are answered, and drains are refused. */
  readonly adminKey?: string;
  /**
   * Whether backends are told the rank of each request as `priority` in its body, as vLLM takes it with
   * `--scheduling-policy priority`; default false.
   */
  readonly sendPriority?: boolean;
  /**
   * Whether recent prompts are remembered by their prints, so that clients and metrics are told why a prompt was not found in a
   * cache; default false.
   */
  readonly diagnostics?: boolean;
  /** Names of headers of clients that go on to backends beside those of the API. Default: none. */
  readonly forwardHeaders?: readonly string[];
  /** Between two polls of a backend; default 500. */
  readonly pollMs?: number;
  /** Key of the policies' random streams; default 0. */
  readonly seed?: bigint;
  readonly limits?: Partial<GatewayLimits>;
  /** Where decisions and what they depend on are written. */
  readonly log?: string;
  /** Where requests are written, as a workload that `simulate` takes. */
  readonly trace?: string;
  /** Bytes after which a file of log or trace is moved to its name with a number, and a new one begins; default 2^30. */
  readonly partBytes?: number;
  /** Is told once of what an operator should know and only running shows; `notes` of the gateway has it from then on. */
  readonly noted?: (note: string) => void;
  /** Such files that are kept of each, the newest ones; default 0 for all. A log is replayed with all its parts only. */
  readonly keepParts?: number;
}

/** Smallest part of a log: each begins with the plan. */
const PART_BYTES_LEAST = 2 ** 16;

const gatewayTable = optionTable(
  {
    backends: is.passed(),
    policy: is.optional(is.object()),
    shadows: is.optional(is.array()),
    control: is.optional(is.object()),
    queue: is.optional(is.object()),
    host: is.optional(is.name()),
    port: is.optional(is.integer(0, 65_535), 8080),
    operatorHost: is.optional(is.name()),
    operatorPort: is.optional(is.integer(0, 65_535), 0),
    blockTokens: is.optional(is.integer(1, 2 ** 20), 16),
    maxSequences: is.optional(is.integer(1, 2 ** 30), 256),
    backendBlocks: is.optional(is.array()),
    tokenizer: is.optional(is.name()),
    keySecret: is.optional(is.bytes()),
    tenants: is.optional(is.map()),
    tenantsApart: is.optional(is.flag()),
    adminKey: is.optional(is.name()),
    sendPriority: is.optional(is.flag()),
    diagnostics: is.optional(is.flag()),
    forwardHeaders: is.optional(is.array()),
    pollMs: is.optional(is.integer(10, DAY_MS), 500),
    seed: is.optional(is.bigint()),
    limits: is.optional(limitsTable),
    log: is.optional(is.name()),
    trace: is.optional(is.name()),
    partBytes: is.optional(is.integer(PART_BYTES_LEAST, 2 ** 50), PART_BYTES_LEAST),
    noted: is.optional(is.func()),
    keepParts: is.optional(is.integer(0, 1_000_000), 0),
  } satisfies Kinds<GatewayConfig>,
  'TKV_CONFIG',
);

export interface CheckedGateway {
  readonly config: GatewayConfig;
  readonly limits: GatewayLimits;
  readonly plan: GatewayPlan;
  readonly backendBlocks: readonly number[];
  readonly forwardHeaders: ReadonlySet<string>;
}

/** @throws TKV_CONFIG with the field at fault */
export function checkGateway(config: GatewayConfig): CheckedGateway {
  gatewayTable.read(config, 'config');
  is.list(is.fields({ url: is.text() })).read(config.backends, 'backends');
  const limits = limitsTable.read(config.limits ?? {}, 'limits');
  if (config.tenantsApart !== undefined && config.tenants === undefined) {
    throw configError('tenantsApart', 'is given without tenants', 'Give tenants too, or leave it out.');
  }
  for (const tenant of config.tenants?.values() ?? []) {
    // servers get it in a header; one that they did not get would share with all others
    if (typeof tenant === 'string' && /^[\x21-\x7e]{1,128}$/.test(tenant)) continue;
    const remedy = 'Name tenants by up to 128 letters of ASCII without spaces.';
    throw configError('tenants', `has ${described(tenant)}`, remedy);
  }
  const { backendBlocks = [65_536] } = config;
  if (backendBlocks.length < 1 || backendBlocks.length > 4) {
    throw configError(
      'backendBlocks',
      `has ${backendBlocks.length} tiers`,
      'Give blocks of one to four tiers.',
    );
  }
  for (const blocks of backendBlocks) requireInteger('backendBlocks', blocks, 1, 2 ** 30);
  // servers that compute prompts for others are there to be used, unless the configuration decides otherwise
  const isSplit = config.backends.some(({ role }) => role === 'prefill');
  const routing = config.control?.routing ?? { policy: routingPolicies.nameOf('isUsual') };
  // two objects of one policy: that which goes round by turns would else skip servers
  const apart =
    config.policy?.routing === undefined ? { prefillRouting: routing, decodeRouting: routing } : {};
  const control = checkControl({
    ...(isSplit ? { decider: { policy: 'always' }, ...apart } : {}),
    signals: { snapshotIntervalUs: 0, cacheSignalUs: 0 },
    ...config.control,
  });
  const plan: GatewayPlan = {
    control,
    queue: control.gateway === null ? null : (config.queue ?? { tickUs: 1000, ttlUs: 0 }),
    bundle: config.policy ?? null,
    shadows: config.shadows ?? [],
    blockTokens: config.blockTokens ?? 16,
    maxSequences: config.maxSequences ?? 256,
    seed: String(config.seed ?? 0n),
  };
  const forwardHeaders = headersToForward(config.forwardHeaders ?? []);
  return { config, limits, plan, backendBlocks, forwardHeaders };
}

/** Headers that no client may say for itself, whatever the configuration says. */
const neverForwarded =
  /^(host|connection|cookie|content-.*|transfer-encoding|x-tenant-id|x-request-id|expect|te|upgrade)$/;

function headersToForward(headers: readonly unknown[]): ReadonlySet<string> {
  const names = headers.map((header) => String(header).toLowerCase());
  const wrong = names.find(
    (name) => !/^[a-z0-9!#$%&'*+.^_`|~-]{1,128}$/.test(name) || neverForwarded.test(name),
  );
  if (wrong === undefined) return new Set(names);
  throw configError(
    'forwardHeaders',
    `has ${JSON.stringify(wrong)}`,
    'Name headers that a server reads of clients.',
  );
}

/** Whether any policy looks at the keys of prompts; a program or a tree may. */
export function planReadsKeys({ control, bundle, shadows }: GatewayPlan): boolean {
  return controlReadsKeys(control) || bundle !== null || shadows.length > 0;
}
