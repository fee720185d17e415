/** Attention by TensorFlow.js on its cpu backend: other people's code, which knows nothing of blocks. */

import { createRequire } from 'node:module';
import { NO_TOKEN } from '../../../src/compute/index.ts';
import type { PagedCase } from './pagedCase.ts';

const require = createRequire(import.meta.url);

/** `[row][Q heads][headDim]`, as `attendedInF64`. */
export async function attendedInTf(one: PagedCase): Promise<Float64Array> {
  const tf = require('@tensorflow/tfjs-core');
  require('@tensorflow/tfjs-backend-cpu');
  await tf.setBackend('cpu');
  const { shape, rows, sequenceOf, qkv, stored } = one;
  const { headDim, kvHeads, qHeads, lengths, window = 0 } = shape;
  const stride = (qHeads + 2 * kvHeads) * headDim;
  const out = new Float64Array(sequenceOf.length * qHeads * headDim);
  tf.tidy(() => {
    const tensors = stored.map(({ k, v }, sequence) =>
      [k, v].map((values) => tf.tensor(Float32Array.from(values), [kvHeads, lengths[sequence], headDim])),
    );
    for (const [row, sequence] of sequenceOf.entries()) {
      const position = rows[4 * row];
      if (position === NO_TOKEN) continue;
      const first = window === 0 ? 0 : Math.max(0, position + 1 - window);
      const attended = tf.tidy(() => {
        const seen = tensors[sequence].map((each) =>
          tf.slice(each, [0, first, 0], [-1, position + 1 - first, -1]),
        );
        const q = tf.tensor(qkv.slice(row * stride, row * stride + qHeads * headDim), [
          kvHeads,
          qHeads / kvHeads,
          headDim,
        ]);
        const scores = tf.mul(tf.matMul(q, seen[0], false, true), 1 / Math.sqrt(headDim));
        return tf.matMul(tf.softmax(scores), seen[1]);
      });
      out.set(attended.dataSync(), row * qHeads * headDim);
    }
  });
  return out;
}
