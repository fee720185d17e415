/** Search over decision trees: mutation and crossover within a vocabulary. */

export {
  crossTrees,
  depthOf,
  isBranch,
  mutateTree,
  nodesOf,
  replaceNode,
  type TreeChild,
} from './evolveTree.ts';
export type { TreeAction, TreeFeature, TreeVocabulary } from './vocabulary.ts';
