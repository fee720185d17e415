/**
 * Shape of a model's KV, read from the inputs of its session, and the models that are refused. Only one kind is served:
 * a decoder whose KV is one key and one value tensor a layer, [batch, KV heads, tokens, head dim], growing by the
 * tokens that were computed, and determined by the token ids alone. All others are refused by their name, since blocks
 * of them would be wrong sooner or later.
 */

import { described, TierKVError } from '../../runtime/errors.ts';
import { type KVDtype, type KVLayout, kvLayout } from '../../runtime/geometry/layout.ts';

import type { DecoderModel, EngineSession, SessionInput } from './engine.ts';

export interface ModelShape {
  /** Names of the cache's tensors in order: key and value of each layer. */
  readonly names: readonly { readonly key: string; readonly value: string }[];
  /** The type that tensors of this KV have in transformers.js. */
  readonly tensorType: 'float32' | 'float16';
  readonly dtype: KVDtype;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly session: EngineSession;
  /** Name of the session among those of the model. */
  readonly sessionName: string;
}

/** Inputs that say nothing of the KV but what the token ids say. */
const plainInputs = new Set([
  'input_ids',
  'attention_mask',
  'position_ids',
  'num_logits_to_keep',
  'use_cache_branch',
]);

/** Caches of other kinds, by how their inputs begin. */
const otherCaches: readonly (readonly [prefix: string, what: string])[] = [
  ['past_conv', 'convolution states'],
  ['past_ssm', 'state-space states'],
  ['past_recurrent', 'recurrent states'],
  ['past_compressor', 'compressed caches'],
  ['past_indexer', 'caches of an indexer'],
];

/** Types that tensors of KV can have, by how transformers.js calls them. */
const dtypes: Readonly<Record<string, KVDtype>> = { float32: 'f32', float16: 'f16' };

/** Types of quantised caches. */
const quantised = /^(u?int(2|4|8)|float8|float4)/;

function refused(what: string, remedy: string): TierKVError {
  return new TierKVError('TKV_CONFIG', `model has ${what}, which the prefix cache cannot keep. ${remedy}`, {
    field: 'model',
  });
}

const useDirectly = 'Call model.generate of transformers.js itself.';

/**
 * @throws TKV_CONFIG for what is not a model, and for each kind of model that cannot be served, by its name
 */
export function shapeOfModel(model: DecoderModel): ModelShape {
  const isModel =
    (typeof model === 'object' || typeof model === 'function') &&
    model !== null &&
    typeof model.generate === 'function' &&
    typeof model.sessions === 'object' &&
    model.sessions !== null;
  if (!isModel) {
    throw new TierKVError(
      'TKV_CONFIG',
      `model must be a model of transformers.js, and it is ${described(model)}. ` +
        'Pass what AutoModelForCausalLM.from_pretrained gave, or the model of a pipeline.',
      { field: 'model' },
    );
  }
  const config = model.config as Readonly<Record<string, unknown>> | undefined;
  if (config?.is_encoder_decoder === true) throw refused('an encoder and a decoder', useDirectly);
  const [[sessionName, session] = ['', undefined], ...others] = Object.entries(model.sessions);
  if (others.length > 0) {
    const names = Object.keys(model.sessions).join(', ');
    throw refused(`several sessions (${names}), as models of images or sound have`, useDirectly);
  }
  const inputs = (session as EngineSession | undefined)?.inputMetadata;
  if (!Array.isArray(inputs)) throw refused('no session whose inputs are known', useDirectly);
  return { ...shapeOfInputs(inputs), session: session as EngineSession, sessionName };
}

type CacheShape = Omit<ModelShape, 'session' | 'sessionName'>;

function shapeOfInputs(inputs: readonly SessionInput[]): CacheShape {
  const layers = new Map<number, { key?: SessionInput; value?: SessionInput }>();
  for (const input of inputs) {
    const found = /^past_key_values\.(\d+)\.(key|value)$/.exec(input.name);
    if (found !== null) {
      const layer = Number(found[1]);
      layers.set(layer, { ...layers.get(layer), [found[2]]: input });
      continue;
    }
    if (plainInputs.has(input.name)) continue;
    if (/^past_key_values\.\d+\.(encoder|decoder)\./.test(input.name)) {
      throw refused('an encoder and a decoder', useDirectly);
    }
    const other = otherCaches.find(([prefix]) => input.name.startsWith(prefix));
    if (other !== undefined) throw refused(`${other[1]} (input ${input.name})`, useDirectly);
    throw refused(`an input ${input.name}, which may change its KV`, useDirectly);
  }
  if (layers.size === 0) {
    throw refused('no past_key_values among its inputs', 'Export it as a decoder with past.');
  }
  const sorted = [...layers].sort(([a], [b]) => a - b);
  const tensors = sorted.flatMap(([layer, { key, value }]) => {
    if (key !== undefined && value !== undefined) return [key, value];
    throw refused(`no ${key === undefined ? 'key' : 'value'} of layer ${layer}`, 'Export it anew.');
  });
  const shapes = tensors.map(tensorShape);
  const [first] = shapes;
  const differs = shapes.findIndex(
    ({ kvHeads, headDim, type }) =>
      kvHeads !== first.kvHeads || headDim !== first.headDim || type !== first.type,
  );
  if (differs !== -1) {
    const { name } = tensors[differs];
    throw refused(`layers of different shapes (${tensors[0].name} and ${name})`, useDirectly);
  }
  return {
    names: sorted.map(([layer]) => ({
      key: `past_key_values.${layer}.key`,
      value: `past_key_values.${layer}.value`,
    })),
    tensorType: first.type,
    dtype: dtypes[first.type],
    kvHeads: first.kvHeads,
    headDim: first.headDim,
  };
}

function tensorShape({ name, type = '', shape = [] }: SessionInput): {
  kvHeads: number;
  headDim: number;
  type: 'float32' | 'float16';
} {
  if (quantised.test(type)) throw refused(`a quantised cache (${name} is ${type})`, useDirectly);
  if (type !== 'float32' && type !== 'float16') {
    throw refused(`a cache of ${type === '' ? 'unknown type' : type} (${name})`, useDirectly);
  }
  const [, kvHeads, past, headDim] = shape;
  const axes = `[${shape.join(', ')}]`;
  if (typeof past === 'number' && shape.length === 4 && typeof headDim === 'number') {
    throw refused(`a static cache, such as a sliding window (${name} is ${axes})`, useDirectly);
  }
  if (shape.length !== 4 || typeof kvHeads !== 'number' || typeof headDim !== 'number') {
    throw refused(
      `a cache whose axes are not [batch, KV heads, past, head dim] (${name} is ${axes})`,
      useDirectly,
    );
  }
  return { kvHeads, headDim, type };
}

/**
 * The layout of the blocks that hold a model's KV, for a runtime of your own.
 * @throws TKV_CONFIG for a model that cannot be served, by its kind
 */
export function layoutOf(model: DecoderModel, blockTokens = 16): KVLayout {
  return layoutOfShape(shapeOfModel(model), blockTokens);
}

export function layoutOfShape(shape: ModelShape, blockTokens: number): KVLayout {
  const { names, kvHeads, headDim, dtype } = shape;
  return kvLayout({ layers: names.length, kvHeads, headDim, dtype, blockTokens });
}
