/**
 * Whether the KV of a token depends on how long the whole sequence is: RoPE that takes other angles for all tokens of a call
 * once the sequence is longer than some length. Such KV is of one of two regimes, which enters the key; what belongs to
 * neither is computed.
 *
 * A call computes all its tokens with the angles of the length that it ends at. So a prompt of n tokens has the KV of n's
 * regime from its first token on, and an answer that grows past the length goes on with the other angles.
 */

import { TierKVError } from '../../runtime/errors.ts';

export interface RopeRegimes {
  /** Name of the kind in the configuration. */
  readonly kind: string;
  /** The length above which angles are others. */
  readonly tokens: number;
  /** Above it they are the same for every length. */
  readonly isOneAbove: boolean;
}

/** The regime of a sequence. */
interface RopeRegime {
  /** Stands in the key. */
  readonly name: string;
  /** Tokens from the front that are of this regime, whatever followed them. */
  readonly mostTokens: number;
}

/** Kinds whose angles a token's position determines. */
const byPosition = new Set(['default', 'linear', 'llama3', 'yarn', 'deepseek_yarn', 'mrope', 'proportional']);

type Settings = Readonly<Record<string, unknown>>;

/**
 * Regimes of lengths in a configuration; undefined where lengths do not matter.
 * @throws TKV_CONFIG for a kind that is not known, and for one without its length
 */
export function ropeRegimesOf(config: object): RopeRegimes | undefined {
  const found = scopes(config as Settings).flatMap(regimesOfScope);
  const [first] = found;
  const other = found.find(({ kind, tokens }) => kind !== first.kind || tokens !== first.tokens);
  if (other !== undefined) {
    throw refused(`layers whose RoPE changes in different ways (${first.kind}, ${other.kind})`);
  }
  return first;
}

/** The configuration itself, and the one of the text model within. */
function scopes(config: Settings): Settings[] {
  return [config, config.text_config].filter((each): each is Settings => isObject(each));
}

function isObject(value: unknown): value is Settings {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function regimesOfScope(config: Settings): RopeRegimes[] {
  const { rope_scaling: scaling, rope_parameters: parameters, use_dynamic_ntk: isNtk } = config;
  const named = [scaling, parameters].filter(isObject);
  // one for all layers, or one for each kind of layer
  const all = named.flatMap((each) => [each, ...Object.values(each).filter(isObject)]);
  const found = all.flatMap((each) => regimesOf(each, config));
  // the first generation of Qwen says it apart
  return isNtk === true ? [...found, { ...lengthOf('dynamic', config, config), isOneAbove: false }] : found;
}

function regimesOf(settings: Settings, config: Settings): RopeRegimes[] {
  const kind = settings.rope_type ?? settings.type;
  if (kind === undefined || kind === null || byPosition.has(String(kind))) return [];
  if (kind === 'longrope' || kind === 'su') {
    return [{ ...lengthOf(kind, settings, config), isOneAbove: true }];
  }
  if (/dynamic/.test(String(kind))) {
    return [{ ...lengthOf(String(kind), settings, config), isOneAbove: false }];
  }
  throw refused(`RoPE of the kind ${JSON.stringify(kind)}`);
}

function lengthOf(kind: string, settings: Settings, config: Settings): Omit<RopeRegimes, 'isOneAbove'> {
  const original = 'original_max_position_embeddings';
  const length =
    settings[original] ?? config[original] ?? config.max_position_embeddings ?? config.seq_length;
  if (typeof length === 'number' && Number.isInteger(length) && length > 0) return { kind, tokens: length };
  throw refused(`RoPE of the kind ${JSON.stringify(kind)} without ${original}`);
}

function refused(what: string): TierKVError {
  return new TierKVError(
    'TKV_CONFIG',
    `model has ${what}, which may change KV in ways that the prefix cache does not know. ` +
      'Call model.generate of transformers.js itself.',
    { field: 'model' },
  );
}

/**
 * The regime of a sequence whose call ends at `tokens` tokens; undefined where its KV is of that length alone. At the length
 * itself exports differ.
 */
export function regimeAt(regimes: RopeRegimes, tokens: number): RopeRegime | undefined {
  const { kind, tokens: most, isOneAbove } = regimes;
  if (tokens < most) return { name: `${kind} below ${most}`, mostTokens: most - 1 };
  return tokens > most && isOneAbove
    ? { name: `${kind} above ${most}`, mostTokens: Number.POSITIVE_INFINITY }
    : undefined;
}
