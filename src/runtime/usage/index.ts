/** How often blocks are used, with statistics that decay. */

export { halved } from './decay.ts';
export { BlockUse, type UseHistory, type UseRates } from './useHistory.ts';
export { HALF_LIFE_US_DEFAULT, UseTable, useRates, YOUTH_US_DEFAULT } from './useTable.ts';
