/** How large a bundle is: what a search can hold small, so that policies stay readable and do not overfit. */

import { type PolicyBundle, type PolicySpec, policySlots, type TreeNode } from '../bundle/index.ts';

const comments = { starlark: /#.*$/gm, javascript: /\/\/.*$/gm };

function treeSize(node: TreeNode): number {
  return 'condition' in node ? 1 + treeSize(node.trueChild) + treeSize(node.falseChild) : 1;
}

function specSize(spec: PolicySpec): number {
  switch (spec.type) {
    case 'parameterized':
      return (
        1 +
        Object.values(spec.parameters).reduce((sum: number, value) => {
          return sum + (typeof value === 'object' ? Object.keys(value).length : 1);
        }, 0)
      );
    case 'decisionTree':
      return treeSize(spec.root);
    case 'code':
      // words and signs of the text, without comments; of a module its bytes in pieces of four
      return spec.language === 'wasm'
        ? Math.ceil(spec.source.length / 4)
        : (spec.source.replaceAll(comments[spec.language], '').match(/\w+|[^\s\w]/g)?.length ?? 0);
  }
}

/** Nodes of trees, parameters that are set, words and signs of programs, over all slots. */
export function policyNodes(bundle: PolicyBundle): number {
  return policySlots.reduce((sum, slot) => {
    const spec = bundle[slot];
    return spec === undefined ? sum : sum + specSize(spec);
  }, 0);
}
