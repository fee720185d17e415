/** How much of a long check one run takes: a slice in `npm test`, all of it in `npm run campaign -- full [FILES]`. */
export const isFull: boolean = process.env.TIERKV_FULL === '1';

/** @param slice as small as it can be while it still meets all that it is there for */
export const sized = <T>(slice: T, full: T): T => (isFull ? full : slice);
