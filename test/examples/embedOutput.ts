/** What examples/embed.ts prints, line by line. */

export const embedOutput: readonly string[] = [
  'begin: 0 tokens cached, 7 blocks',
  'step: 120 tokens, 8 blocks',
  'fork: 113 tokens with eight drafts, 8 blocks',
  'truncate: 107 tokens, 7 blocks',
  'lookup: [ 0, 6, 0 ] blocks in HBM, DDR, NVMe',
  'reload: 120 of 130 tokens need no prefill',
  'wait: 1 request waits, there is room for 11 blocks',
  'wait: served with 15 blocks',
];
